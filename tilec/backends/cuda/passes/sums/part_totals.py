"""Totals that lie as a product's sums do, to which trips add sums of something else, are added to once.

    for k: total[i] += sum of row i of a tile    ->    for k: own[i] += sum of row i of a tile
    c[i, j] -= total[i]                                total[i] += own[i];  c[i, j] -= total[i]

The product decides which threads hold ``total``, the tile which hold its rows' sums: what one adds to the
other in a trip crosses shared memory and barriers. ``own`` lies as the sums do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.held_alike import held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.analysis.trips.totals import addition_of, blocks_in, users
from tilec.backends.cuda.nodes import REPEATING
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    Fill,
    Launch,
    Parallel,
    Reduce,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.reductions import REDUCTIONS
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.accumulations import Accumulation, identity
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import LaunchPass, replaced
from tilec.lowering.passes.expand_copies import expand_copy, expand_fill

if TYPE_CHECKING:
    from tvm.ir import Var

#: Reductions whose parts a fragment takes in.
_KINDS = ("sum", "abssum", "max", "min")


class PartTotals(LaunchPass):
    """In: Reduces in loops whose results go to fragments that loops read beside a product's sums, and that
    the loop does not name otherwise. Out: they go to fragments of their own, which are added behind the
    loop."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its totals behind loops."""
        stmts = list(walk(launch.body))
        sums = sums_in(stmts)
        if not sums:
            return launch
        held = held_alike(stmts, sums)
        used = [{item.buffer for item in accesses(stmt.body)} for stmt in stmts if isinstance(stmt, Parallel)]
        beside = {buffer for found in used if found & held for buffer in found} - held
        return replace(launch, body=_Totals(held, beside, users(stmts)).block(launch.body))


@dataclass(frozen=True)
class _Total:
    """``update`` adds what ``reduce`` finds to ``buffer``; the reduction itself may be what does."""

    reduce: Reduce
    update: Stmt
    buffer: Var


@dataclass(frozen=True)
class _Totals:
    """Totals ``beside`` fragments that lie as a product's sums do, which are ``held``; ``users``: how many
    statements name a buffer."""

    held: Set[Var]
    beside: Set[Var]
    users: Mapping[Var, int]

    def block(self, block: Block) -> Block:
        """A block with the totals of its loops behind these."""
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        totals = self._found(stmt) if isinstance(stmt, REPEATING) else []
        before: list[Stmt] = []
        behind: list[Stmt] = []
        for total in totals:
            own = _like(total.buffer, "own", "local.fragment")
            first = identity(total.reduce.kind, str(own.dtype))
            before += [Alloc(own), expand_fill(Fill(whole_tile(own), first, loc=total.reduce.loc))]
            stmt = _to(own, total, stmt)
            behind += _added(own, total)
        return [*before, with_children(stmt, [self.block(inner) for inner in children(stmt)]), *behind]

    def _found(self, loop: Stmt) -> list[_Total]:
        """What a loop adds to once in a trip, and does not touch otherwise."""
        (body,) = children(loop)
        inside = list(walk(body))
        named, own = users(inside), {stmt.buffer for stmt in inside if isinstance(stmt, Alloc)}
        totals = [total for block in blocks_in(body) for total in self._totals(block)]
        return [total for total in totals if total.buffer in self.beside - own and named[total.buffer] == 1]

    def _totals(self, block: Block) -> Iterator[_Total]:
        for place, stmt in enumerate(block):
            if isinstance(stmt, Reduce) and stmt.src.buffer not in self.held and stmt.kind in _KINDS:
                total = self._total(stmt, block[place + 1 :])
                if total is not None:
                    yield total

    def _total(self, reduce: Reduce, behind: Block) -> _Total | None:
        """What a reduction is added to, by itself or by the next statement that names its result, if that
        goes nowhere else."""
        part = reduce.dst.buffer
        if compute_type(str(part.dtype)) != str(part.dtype) or not is_whole(reduce.dst):
            return None
        if not reduce.clear:
            return _Total(reduce, reduce, part)
        found = addition_of(part, behind, self.users)
        if reduce.kind != "sum" or found is None:
            return None
        update, store, factor = found
        return _Total(reduce, update, store.buffer) if getattr(factor, "value", None) == 1 else None


def _like(buffer: Var, what: str, scope: str) -> Var:
    return tirx.decl_buffer(buffer.shape, str(buffer.dtype), name=f"{buffer.name}_{what}", scope=scope)


def _to(own: Var, total: _Total, loop: Stmt) -> Stmt:
    """A loop that adds to a fragment of its own."""
    made: dict[Stmt, Block] = {total.update: ()}
    made[total.reduce] = (replace(total.reduce, dst=whole_tile(own), clear=False),)
    return with_children(loop, [replaced(inner, made) for inner in children(loop)])


def _added(own: Var, total: _Total) -> list[Stmt]:
    """A fragment of totals with what a loop has added to another, by way of shared memory: threads hold the
    two as they like."""
    buffer, loc = total.buffer, total.reduce.loc
    tile = _like(own, "tile", "shared.dyn")
    passed = expand_copy(Copy(whole_tile(own), whole_tile(tile), loc=loc))
    variables = tuple(tirx.Var(f"i{axis}", "int32") for axis, _ in enumerate(buffer.shape))
    old, new = (tirx.BufferLoad(source, list(variables)) for source in (buffer, tile))
    kind, keeps = REDUCTIONS[total.reduce.kind].join, total.reduce.nan_propagate
    store = Store(buffer, variables, old, loc=loc)
    value = Accumulation(store, kind, new, keeps).combined(old, new)
    extents = static_extents(buffer)
    return [Alloc(tile), passed, Parallel(variables, extents, (replace(store, value=value),), loc=loc)]
