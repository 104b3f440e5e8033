"""Reductions that the trips of a loop add up are taken across threads once, behind the loop.

    for m: w[j] += sum of column j of x     ->    for m: own[j] += this thread's part of it
                                                  w[j] += sum of own[j] over threads

Exchanges between lanes, a passage through shared memory and its barrier leave every trip. Terms come in
another order, as reductions may take them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import layouts_in, whole_tile
from tilec.backends.cuda.analysis.trips.totals import addition_of, blocks_in, store_of_each, users
from tilec.backends.cuda.nodes import REPEATING, BlockReduce, JoinReduce, OwnReduce, ThreadLoop
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import thread_terms
from tilec.ir.nodes import Alloc, Block, Launch, Region, Stmt, Store, children, walk, with_children
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import LaunchPass, replaced

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class DeferReductions(LaunchPass):
    """In: launches with layouts. Out: each BlockReduce in a loop that adds to a fragment, or whose result one
    statement adds to a fragment, is an OwnReduce there and a JoinReduce behind the loop, if the loop does
    nothing else with that."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its reductions behind loops."""
        deferral = _Deferral(layouts_in(launch.body), users(walk(launch.body)))
        return replace(launch, body=deferral.block(launch.body))


@dataclass(frozen=True)
class _Total:
    """A reduction, what it is added to, and the statement that adds it, times ``factor`` before that, where
    it is not the reduction itself."""

    reduce: BlockReduce
    buffer: Var
    update: Stmt | None = None
    factor: Expr | None = None


@dataclass(frozen=True)
class _Deferral:
    """Moves reductions: ``layouts`` are those of fragments, ``users`` how many statements name a buffer."""

    layouts: Mapping[Var, Layout]
    users: Counter[Var]

    def block(self, block: Block) -> Block:
        """A block with the reductions of its loops behind these."""
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        totals = self._totals(stmt) if isinstance(stmt, REPEATING) else []
        own = {total.reduce: self._own(total) for total in totals}
        made = dict(new for total in totals for new in _in_trip(total, own[total.reduce].buffer))
        inner = [self.block(replaced(block, made)) for block in children(stmt)]
        joins = [self._behind(total, own[total.reduce].buffer) for total in totals]
        return [*own.values(), with_children(stmt, inner), *joins]

    def _totals(self, loop: Stmt) -> list[_Total]:
        """Those of outside that a loop touches once in a trip, and not to end."""
        (body,) = children(loop)
        named = users((loop, *walk(body)))
        inner = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc)}
        found = (self._total(stmt, block) for block in blocks_in(body) for stmt in block)
        kept = (total for total in found if total is not None and total.buffer not in inner)
        return [total for total in kept if named[total.buffer] == 1]

    def _total(self, stmt: Stmt, block: Block) -> _Total | None:
        """What a reduction across threads is added to."""
        if type(stmt) is not BlockReduce or not thread_terms(self.layouts[stmt.src.buffer], stmt.axis):
            return None
        dtype = str(stmt.dst.buffer.dtype)
        if compute_type(dtype) != dtype:
            return None
        return self._updated(stmt, block) if stmt.clear else _Total(stmt, stmt.dst.buffer)

    def _updated(self, stmt: BlockReduce, block: Block) -> _Total | None:
        """What a statement behind a sum adds it to, if the sum goes nowhere else."""
        found = addition_of(stmt.dst.buffer, block[block.index(stmt) + 1 :], self.users)
        if stmt.kind != "sum" or found is None:
            return None
        update, store, factor = found
        alike = self.layouts.get(store.buffer) == self.layouts[stmt.dst.buffer]
        return _Total(stmt, store.buffer, update, factor) if alike else None

    def _own(self, total: _Total) -> Alloc:
        """Each thread's own part of a total."""
        buffer, dtype = total.buffer, str(total.buffer.dtype)
        own = tirx.decl_buffer(buffer.shape, dtype, name=f"{buffer.name}_own", scope="local.fragment")
        first = identity(total.reduce.kind, dtype)
        return Alloc(own, layout=self.layouts[buffer], init=first, loc=total.reduce.loc)

    def _behind(self, total: _Total, own: Var) -> JoinReduce:
        layout = self.layouts[total.reduce.src.buffer]
        return joined(total.reduce, whole_tile(own), whole_tile(total.buffer), False, layout)


def _in_trip(total: _Total, own: Var) -> list[tuple[Stmt, Block]]:
    """Statements of a trip, and what comes in their place."""
    update, factor = total.update, total.factor
    if update is None or factor is None or getattr(factor, "value", None) == 1:
        gone: list[tuple[Stmt, Block]] = [] if update is None else [(update, ())]
        return [(total.reduce, (own_part(total.reduce, whole_tile(own), False),)), *gone]
    parts = own_part(total.reduce, total.reduce.dst, True)
    return [(total.reduce, (parts,)), (update, _scaled(update, own, parts.dst.buffer, factor))]


def _scaled(update: Stmt, own: Var, part: Var, factor: Expr) -> Block:
    """The total and each thread's own part of it, times a factor, and what is added to the latter."""
    store = store_of_each(update)
    assert store is not None
    here = list(store.indices)
    total = replace(store, value=tirx.BufferLoad(store.buffer, here) * factor)
    value = tirx.BufferLoad(own, here) * factor + tirx.BufferLoad(part, here)
    made = (total, Store(own, store.indices, value, loc=store.loc))
    return (replace(update, body=made),) if isinstance(update, ThreadLoop) else made


def own_part(stmt: BlockReduce, dst: Region, clear: bool) -> OwnReduce:
    """A reduction of each thread's own elements to ``dst``, added to what is there without ``clear``."""
    return OwnReduce(stmt.kind, stmt.src, dst, stmt.axis, clear, stmt.nan_propagate, loc=stmt.loc)


def joined(stmt: BlockReduce, parts: Region, dst: Region, clear: bool, layout: Layout) -> JoinReduce:
    """What is left of a reduction of what lies by ``layout`` once threads have their ``parts``."""
    return JoinReduce(
        stmt.kind, parts, dst, stmt.axis, layout, clear, stmt.nan_propagate, stmt.scratch, loc=stmt.loc
    )
