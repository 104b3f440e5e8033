"""Regions whose threads go through runs of neighbours have iterations for each element of a run.

for tx in threads:
    for i in serial(4):
        for e in vectorized(8): v[e] = X[(i * 128 + tx) * 8 + e]
        for e in serial(8): s += v[e] * v[e]
->
p[..] = 0
for i in serial(4):
    for tx, e in threads x 8: v[e] = X[(i * 128 + tx) * 8 + e]
    for tx, e in threads x 8: p[tx * 8 + e] += v[e] * v[e]
for tx in threads:
    for e in serial(8): s += p[tx * 8 + e]

Lanes are then neighbours in memory, where those of threads would gather. No thread meets another one in a
region, so that what one does may stand in front of what another one does, trip by trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.threads.find_runs import Runs, find_runs
from tilec.backends.cpu.threads.plan import Nest, Once, Piece, Region, Run, pieces
from tilec.ir import nodes as ir
from tilec.ir.analysis.known_trips import leaves_early
from tilec.ir.exprs import dtype_of, inlined, int_value, loads
from tilec.lowering.analysis.accumulations import Accumulation, find_accumulations, touches
from tilec.lowering.passes.base import replaced
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.ir.analysis.threads.uniform import Uniformity
    from tilec.lowering.analysis.thread_grid import ThreadGrid


def spread_runs(
    plan: Sequence[Piece], grid: ThreadGrid, uniform: Uniformity, names: Mapping[Var, Expr]
) -> tuple[list[Piece], Mapping[Var, int]]:
    """A plan whose regions have their runs as pieces of their own, and the widths of arrays by runs.
    ``names``: what names stand for."""
    regions = [piece for piece in pieces(plan) if isinstance(piece, Region)]
    runs = find_runs((tuple(piece.stmts) for piece in regions), grid, names)
    if not runs.trips:
        return list(plan), {}
    return list(_Spreader(grid, uniform, names, runs).plan(plan)), runs.widths


@dataclass(frozen=True, eq=False)
class _Partial:
    """What lanes of runs of so many add up for an accumulation: ``tile`` has an element for each."""

    item: Accumulation
    number: Expr
    tile: Var
    trips: int

    @classmethod
    def of(cls, item: Accumulation, trips: int, grid: ThreadGrid) -> _Partial:
        """That of an accumulation in runs of so many trips."""
        shape, name = (grid.count * trips,), f"{item.store.buffer.name}_lanes"
        tile = tirx.decl_buffer(shape, item.dtype, name, scope="local.fragment")
        return cls(item, grid.number, tile, trips)

    def element(self, lane: Var) -> TensorLoad:
        """That of a lane of a thread's run."""
        return tirx.BufferLoad(self.tile, [self.number * tirx.const(self.trips, "int32") + lane])

    def stored(self, element: TensorLoad, value: Expr) -> ir.Store:
        """A store to such an element."""
        return replace(self.item.store, buffer=self.tile, indices=tuple(element.indices), value=value)


class _Spreader:
    """Rewrites the regions of one plan."""

    def __init__(self, grid: ThreadGrid, uniform: Uniformity, names: Mapping[Var, Expr], runs: Runs) -> None:
        self._grid, self._uniform, self._names, self._runs = grid, uniform, names, runs

    def plan(self, plan: Sequence[Piece]) -> Iterator[Piece]:
        """The pieces of a block."""
        for piece in plan:
            if isinstance(piece, Nest):
                piece.blocks = [list(self.plan(block)) for block in piece.blocks]
            if isinstance(piece, Region):
                yield from self._block(piece.stmts, piece.guards, {})
                continue
            yield piece

    def _block(
        self, stmts: Sequence[ir.Stmt], guards: tuple[Expr, ...], partials: Mapping[Var, _Partial]
    ) -> list[Piece]:
        made: list[Piece] = []
        rest: list[ir.Stmt] = []
        for stmt in stmts:
            spread = self._spread(stmt, guards, partials)
            if spread is None:
                rest.append(stmt)
                continue
            made += [Region(rest, guards), *spread] if rest else spread
            rest = []
        return [*made, Region(rest, guards)] if rest else made

    def _spread(
        self, stmt: ir.Stmt, guards: tuple[Expr, ...], partials: Mapping[Var, _Partial]
    ) -> list[Piece] | None:
        """A statement as pieces; None where it stays as it is."""
        if not self._runs.inside(stmt):
            return None
        if isinstance(stmt, ir.If):
            return self._branch(stmt, guards, partials)
        if not isinstance(stmt, ir.For) or not self._is_of_block(stmt):
            return None
        own = self._partials(stmt, partials)
        inner = {**partials, **own}
        if stmt in self._runs.trips:
            made = self._run(stmt, guards, inner)
        else:
            made = [Nest(stmt, [self._block(stmt.body, guards, inner)])]
        return [*_begun(own.values()), *made, *_ended(own.values())]

    def _branch(
        self, stmt: ir.If, guards: tuple[Expr, ...], partials: Mapping[Var, _Partial]
    ) -> list[Piece] | None:
        """Both sides of a branch that tests nothing but places."""
        cond = inlined(stmt.cond, self._names)
        if next(loads(cond), None) is not None or isinstance(stmt, ir.Rest):
            return None
        then = self._block(stmt.then, (*guards, cond), partials)
        return then + self._block(stmt.orelse, (*guards, tirx.Not(cond)), partials)

    def _is_of_block(self, loop: ir.For) -> bool:
        """Whether a loop has the same trips for all threads, by what they share."""
        ends = [inlined(end, self._names) for end in (loop.start, loop.stop, loop.step)]
        known = not self._uniform.varies(*ends) and not any(True for end in ends for _ in loads(end))
        return known and not leaves_early(loop)

    def _run(self, loop: ir.For, guards: tuple[Expr, ...], partials: Mapping[Var, _Partial]) -> list[Piece]:
        """A loop as runs of its trips."""
        trips, dtype = self._runs.trips[loop], dtype_of(loop.var)
        lane = tirx.Var(loop.var.name, dtype)
        body = replaced(loop.body, self._stores(loop, lane, partials))
        if int_value(loop.stop) == trips:
            return [Run(list(rename(body, {loop.var: lane})), guards, lane=lane, trips=trips)]
        place = loop.var * tirx.const(trips, dtype) + lane
        run = Run(list(rename(body, {loop.var: place})), guards, lane=lane, trips=trips)
        stop = loop.stop // tirx.const(trips, dtype)
        return [Nest(replace(loop, stop=stop, body=()), [[run]])]

    def _stores(self, loop: ir.For, lane: Var, partials: Mapping[Var, _Partial]) -> dict[ir.Stmt, ir.Block]:
        """What stands in the place of accumulations: those of lanes."""
        made: dict[ir.Stmt, ir.Block] = {}
        for item in find_accumulations(loop.body, loop.var):
            partial = partials[item.store.buffer]
            element = partial.element(lane)
            made[item.store] = (partial.stored(element, item.combined(element, item.term)),)
        return made

    def _partials(self, stmt: ir.For, outer: Mapping[Var, _Partial]) -> dict[Var, _Partial]:
        """The sums of runs in a loop that nothing else in it names."""
        found: dict[Var, list[tuple[Accumulation, int]]] = {}
        for loop in ir.walk((stmt,)):
            if isinstance(loop, ir.For) and loop in self._runs.trips:
                for item in find_accumulations(loop.body, loop.var):
                    found.setdefault(item.store.buffer, []).append((item, self._runs.trips[loop]))
        return {
            buffer: _Partial.of(*items[0], self._grid)
            for buffer, items in found.items()
            if buffer not in outer and _are_one(stmt, buffer, items)
        }


def _are_one(stmt: ir.Stmt, buffer: Var, items: Sequence[tuple[Accumulation, int]]) -> bool:
    """Whether accumulations of one element are all that a statement does with it, and are alike."""
    kinds = {(item.kind, item.nan_propagate, trips) for item, trips in items}
    inside = {inner.buffer for inner in ir.walk((stmt,)) if isinstance(inner, ir.Alloc)}
    return len(kinds) == 1 and touches((stmt,), buffer) == 2 * len(items) and buffer not in inside


def _begun(partials: Iterable[_Partial]) -> Iterator[Piece]:
    """Sums of lanes that begin with nothing."""
    for partial in partials:
        yield Once(ir.Alloc(partial.tile, loc=partial.item.store.loc), None)
        lane = tirx.Var("lane", "int32")
        zero = partial.stored(partial.element(lane), partial.item.identity())
        yield Run([zero], lane=lane, trips=partial.trips)


def _ended(partials: Iterable[_Partial]) -> Iterator[Piece]:
    """What lanes have added up, taken in by their threads."""
    for partial in partials:
        store, lane = partial.item.store, tirx.Var("lane", "int32")
        old = tirx.BufferLoad(store.buffer, list(store.indices))
        value = partial.item.combined(old, partial.element(lane))
        first, stop, step = (tirx.const(number, "int32") for number in (0, partial.trips, 1))
        body = (replace(store, value=value),)
        yield Region([ir.For("serial", lane, first, stop, step, body, loc=store.loc)])
