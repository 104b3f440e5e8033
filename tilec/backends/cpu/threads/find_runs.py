"""Loops by which each thread goes through neighbours in memory, which begin where those of the thread before
end: runs. What such loops bring to arrays of a thread and take from them gives these their runs, too.

    for e in vectorized(8): v[e] = X[(i * 128 + tx) * 8 + e]      # a run of 8, in X and in v
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import dtype_of, inlined, int_value, substitute
from tilec.ir.nodes import Alloc, Bind, For, If, Store, children, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import is_single
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.accumulations import find_accumulations
from tilec.lowering.analysis.counted import counted
from tilec.lowering.analysis.free_trips import are_free
from tilec.lowering.tile_axes import divides_by_zero, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Stmt
    from tilec.lowering.analysis.thread_grid import ThreadGrid

#: How far apart in memory neighbours of a run may be: lanes read what lies between along with them.
_NEAR = (1, 2, 3, 4)
#: Neighbours of a run at most: a thread that has more (a row of its own) goes through them in vectors.
_MOST = 64
#: What a run does.
_PLAIN = (Alloc, Bind, If, Store)
#: Types that lanes add up in: what they round is as much in any order.
_SUMMED = ("float32", "float64", "int32", "int64", "uint32", "uint64")


@dataclass(eq=False)
class Runs:
    """Of a plan: how many trips of each loop are a run, and how many elements of each array of a thread
    (along its last axis) lie beside each other, those of the next thread behind them."""

    trips: dict[For, int] = field(default_factory=dict)
    widths: dict[Var, int] = field(default_factory=dict)

    def inside(self, stmt: Stmt) -> bool:
        """Whether a statement is such a loop, or has one in it."""
        return any(inner in self.trips for inner in walk((stmt,)))


def find_runs(blocks: Iterable[Block], grid: ThreadGrid, names: Mapping[Var, Expr]) -> Runs:
    """The runs of what threads do without meeting. ``names``: what names stand for."""
    loops = [loop for block in blocks for loop in _loops(block) if are_free(loop, names)]
    runs = Runs()
    for loop in loops:
        if _is_in_memory(loop, grid, names):
            runs.trips[loop] = _count(loop)
            _learn(runs, loop, _count(loop), names)
    for loop in loops:
        trips = {width // step for array, step in _steps(loop, names) if (width := runs.widths.get(array, 0))}
        if loop not in runs.trips and len(trips) == 1 and _divides(trip := trips.pop(), _count(loop)):
            runs.trips[loop] = trip
            _learn(runs, loop, trip, names)
    return runs


def _loops(block: Block) -> Iterator[For]:
    """Loops of a known number of trips that do nothing but compute and store, the outermost of such."""
    for stmt in block:
        if isinstance(stmt, For) and _may_be_run(stmt):
            yield stmt
            continue
        for inner in children(stmt):
            yield from _loops(inner)


def _may_be_run(loop: For) -> bool:
    own = (stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc))
    plain = all(isinstance(stmt, _PLAIN) for stmt in walk(loop.body)) and all(map(is_single, own))
    if not plain or not counts_from_zero(loop) or not 1 < _count(loop) <= _MOST:
        return False
    sums = find_accumulations(loop.body, loop.var)
    return all(_is_summed(item.store.buffer) for item in sums)


def _is_summed(buffer: Var) -> bool:
    """Whether a variable of a thread may have parts that lanes add up."""
    return buffer.scope() in PER_THREAD and is_single(buffer) and str(buffer.dtype) in _SUMMED


def _count(loop: For) -> int:
    return int_value(loop.stop) or 0


def _divides(trips: int, count: int) -> bool:
    return trips > 1 and count % trips == 0


def _is_in_memory(loop: For, grid: ThreadGrid, names: Mapping[Var, Expr]) -> bool:
    """Whether a trip's elements of something in memory lie beside those of the next trip, and the last ones
    of a thread beside the first ones of the next thread."""
    lane, extent = grid.loops[-1]
    analyzer = counted((lane, loop.var), (extent, _count(loop)))
    shared = (item for item in accesses(loop.body) if item.buffer.scope() not in PER_THREAD)
    return extent > 1 and any(_follow(item, loop, lane, analyzer, names) for item in shared)


def _follow(item: Access, loop: For, lane: Var, analyzer: sym.Analyzer, names: Mapping[Var, Expr]) -> bool:
    indices = [inlined(index, names) for index in item.indices]
    if not indices or any(map(divides_by_zero, indices)):
        return False
    place = place_of(indices, item.buffer.shape)
    first = substitute(place, {loop.var: tirx.const(0, dtype_of(loop.var))})
    step = _step(place, loop.var, analyzer)
    return step in _NEAR and _step(first, lane, analyzer) == step * _count(loop)


def _step(place: Expr, var: Var, analyzer: sym.Analyzer) -> int | None:
    """How far a place moves with a variable at first; None where that is no number."""
    ends = [substitute(place, {var: tirx.const(value, dtype_of(var))}) for value in (0, 1)]
    return int_value(analyzer.simplify(ends[1] - ends[0]))


def _steps(loop: For, names: Mapping[Var, Expr]) -> Iterator[tuple[Var, int]]:
    """Arrays of threads that a loop goes through, and how far it goes in each trip."""
    analyzer = counted((loop.var,), (_count(loop),))
    for item in accesses(loop.body):
        if item.buffer.scope() not in PER_THREAD or is_single(item.buffer):
            continue
        step = _step(inlined(item.indices[-1], names), loop.var, analyzer)
        if step in _NEAR:
            yield item.buffer, step


def _learn(runs: Runs, loop: For, trips: int, names: Mapping[Var, Expr]) -> None:
    """Takes over how many elements of arrays so many trips of a loop go through."""
    for array, step in _steps(loop, names):
        size, width = int_value(array.shape[-1]) or 0, trips * step
        if size % width == 0:
            runs.widths[array] = gcd(runs.widths.get(array, width), width)
