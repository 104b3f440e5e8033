"""Sums of rows or columns that several warps share are taken behind the loop that adds them up.

    total = 0;  for k: part = sum of a row of S;  total = total * f + part
    ->  sums = 0;  for k: sums = sums * f + S;  total = sum of a row of sums

What warps share of a row (of a column, where products are computed transposed) crosses shared memory and a
barrier in every trip, and each thread has few of its elements: adding each to one of its own takes no more
instructions than adding them to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import clears, is_whole, static_extents, whole_tile
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.analysis.trips.totals import factor_of, store_of_each
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.ir.exprs import substitute
from tilec.ir.nodes import (
    Alloc,
    Block,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Stmt,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import WARP, Group
from tilec.ir.traits import buffers, written
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class SumBehindLoops(LaunchPass):
    """In: loops that reduce a product's rows or columns in every trip, or in those that take a branch, and
    add that to a total. Out: the same with the reduction behind the loop, where several warps hold what is
    reduced."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such sums."""
        if not any(isinstance(stmt, Gemm) for stmt in walk(launch.body)):
            return launch
        chooser = Chooser(launch, None)

        def shared_out(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Group):
                return stmt
            return replace(stmt, body=rewrite_blocks(stmt.body, _Sums(launch, stmt, chooser).block))

        if any(isinstance(stmt, Group) for stmt in launch.body):
            return replace(launch, body=tuple(map(shared_out, launch.body)))
        every = Group(0, thread_count(launch), launch.body)
        return replace(launch, body=rewrite_blocks(launch.body, _Sums(launch, every, chooser).block))


@dataclass(frozen=True)
class _Total:
    """A sum of rows that a loop adds to a total: ``reduce`` makes it and ``update`` adds it."""

    reduce: Reduce
    update: Parallel

    @property
    def store(self) -> Store:
        """What the update does."""
        (store,) = self.update.body
        assert isinstance(store, Store)
        return store


@dataclass(frozen=True)
class _Sums:
    """Moves reductions of the threads of ``group``."""

    launch: Launch
    group: Group
    chooser: Chooser

    def block(self, block: Block) -> list[Stmt]:
        """A block with its reductions behind its loops."""
        made: list[Stmt] = []
        for stmt in block:
            made += self._loop(stmt, made) if isinstance(stmt, (For, Pipelined)) else [stmt]
        return made

    def _loop(self, loop: For | Pipelined, before: Sequence[Stmt]) -> list[Stmt]:
        totals = [total for trip in _trips(loop) for total in self._totals(trip, loop)]
        found = next((total for total in totals if _starts_at_zero(total, before)), None)
        if found is None:
            return [loop]
        rows = found.reduce.src.buffer
        sums = tirx.decl_buffer(rows.shape, "float32", name=f"{rows.name}_sums", scope="local.fragment")
        first = (Alloc(sums), Fill(whole_tile(sums), tirx.const(0, "float32")))

        def moved(block: Block) -> list[Stmt]:
            own = (_own(found, sums) if stmt is found.update else stmt for stmt in block)
            return [stmt for stmt in own if stmt is not found.reduce]

        made = replace(loop, body=rewrite_blocks(loop.body, moved))
        if not fits_registers((*first, *made.body), self.group):
            return [loop]
        total = whole_tile(found.store.buffer)
        behind = replace(found.reduce, src=whole_tile(sums), dst=total, clear=True)
        return [*first, made, behind]

    def _totals(self, trip: Block, loop: For | Pipelined) -> list[_Total]:
        """The totals of a loop, whose trips are ``trip``, that may wait."""
        products = [stmt for stmt in trip if isinstance(stmt, Gemm)]
        shared = {(gemm.c.buffer, axis) for gemm in products for axis in self._shared(gemm)}
        found = [self._total(stmt, trip, loop) for stmt in trip if isinstance(stmt, Reduce)]
        known = (total for total in found if total is not None)
        return [total for total in known if (total.reduce.src.buffer, total.reduce.axis) in shared]

    def _shared(self, gemm: Gemm) -> Sequence[int]:
        """The axes of a product's sums that warps share: rows always, columns where warpgroups do."""
        choice = self.chooser.product(gemm, self.group.count // WARP)
        return () if isinstance(choice, str) else (0, 1) if choice[0].warps[1] > 1 else (0,)

    def _total(self, reduce: Reduce, trip: Block, loop: For | Pipelined) -> _Total | None:
        """The total that a sum of whole rows or columns goes into, where the trip does nothing else with
        either."""
        part, rows = reduce.dst.buffer, reduce.src
        if reduce.kind != "sum" or not reduce.clear or len(rows.extent) != 2 or not is_whole(rows):
            return None
        users = [stmt for stmt in walk(self.launch.body) if part in set(buffers(stmt)) and not _holds(stmt)]
        place = trip.index(reduce)
        update = next((stmt for stmt in trip[place:] if _row_store(stmt) in users), None)
        if len(users) != len(("reduce", "update")) or not isinstance(update, Parallel):
            return None
        total = _Total(reduce, update)
        between = trip[place : trip.index(update)]
        own = [stmt for stmt in walk(loop.body) if total.store.buffer in set(buffers(stmt))]
        kept = all(rows.buffer not in set(written(stmt)) for stmt in walk(between))
        alone = all(stmt is total.store or isinstance(stmt, Parallel) for stmt in own)
        return total if kept and alone and _factor(total) is not None else None


def _trips(loop: For | Pipelined) -> Iterator[Block]:
    """The statements of a loop's trips, and those of a branch that ends each."""
    yield loop.body
    if loop.body and isinstance(loop.body[-1], If) and not loop.body[-1].orelse:
        yield loop.body[-1].then


def _holds(stmt: Stmt) -> bool:
    """Whether a statement names a buffer for others."""
    return isinstance(stmt, (Alloc, Parallel))


def _row_store(stmt: Stmt) -> Store | None:
    """What stores every element of a row of totals."""
    store = store_of_each(stmt)
    return store if store is not None and len(store.indices) == 1 else None


def _factor(total: _Total) -> Expr | None:
    """What a total is multiplied by in each trip; None where that is not known in front of it."""
    return factor_of(total.store, total.reduce.dst.buffer, (total.reduce.src.buffer,))


def _own(total: _Total, sums: Var) -> Parallel:
    """The update of sums of each element."""
    factor, rows = _factor(total), total.reduce.src.buffer
    assert factor is not None
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    here = [i, j]
    kept = here[1 - total.reduce.axis]
    old = tirx.BufferLoad(sums, here) * substitute(factor, {total.update.vars[0]: kept})
    store = Store(sums, (i, j), old + tirx.BufferLoad(rows, here), loc=total.store.loc)
    return Parallel((i, j), static_extents(rows), (store,), loc=total.update.loc)


def _starts_at_zero(total: _Total, before: Sequence[Stmt]) -> bool:
    """Whether a total is 0 in front of its loop."""
    buffer = total.store.buffer
    last = next(
        (stmt for stmt in reversed(before) if any(buffer in set(written(inner)) for inner in walk((stmt,)))),
        None,
    )
    return isinstance(last, Fill) and is_whole(last.dst) and clears(last)
