"""Tiles that are loaded part by part, such as pages of keys, have a copy for each part.

    for p: tile[16 * p : 16 * p + 16, :] = source[table[f(p)], ...]

All parts of a tile go to one stage of its ring, one box after the other; what they look up is read before
there is room.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym

from tilec.backends.cuda.analysis.products.wgmma import GROUP_ROWS
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.renaming import in_trip
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Bind, Block, Copy, For, Stmt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Var

#: Parts of a tile that one thread starts: more are brought by lanes, of launches without this strategy.
_MOST_PARTS = 8


def with_parts(block: Block) -> Block:
    """``block`` with loops of nothing but copies as these copies, where they are few."""
    return tuple(new for stmt in block for new in _written_out(stmt))


def _written_out(stmt: Stmt) -> Block:
    if not isinstance(stmt, For) or not all(isinstance(inner, (Bind, Copy)) for inner in stmt.body):
        return (stmt,)
    trips = known_trips(stmt)
    if trips is None or len(trips) > _MOST_PARTS:
        return (stmt,)
    return tuple(part for trip in trips for part in _trip(stmt, trip))


def _trip(loop: For, trip: int) -> Block:
    """The statements of one trip, whose places in tiles are numbers."""
    return tuple(_with_numbers(stmt) if isinstance(stmt, Copy) else stmt for stmt in in_trip(loop, trip))


def _with_numbers(copy: Copy) -> Copy:
    analyzer = sym.Analyzer()
    start = tuple(analyzer.simplify(index) for index in copy.dst.start)
    return replace(copy, dst=replace(copy.dst, start=start))


def fill_once(tile: Var, copies: Sequence[Copy]) -> bool:
    """Whether copies to rows of a tile, in groups after which its pattern repeats, fill each row once."""
    rows: list[int] = []
    for copy in copies:
        first, count = int_value(copy.dst.start[0]), int_value(copy.dst.extent[0])
        if first is None or count is None:
            return False
        if len(copies) > 1 and (first % GROUP_ROWS or count % GROUP_ROWS):
            return False
        rows += range(first, first + count)
    return sorted(rows) == list(range(int_value(tile.shape[0]) or 0))


def tile_by_tile(block: Block) -> Block:
    """The statements of a producer; where a tile has several copies, names come first, and these copies one
    after the other where the first of them is."""
    names = [stmt for stmt in block if isinstance(stmt, Bind)]
    others = [stmt for stmt in block if not isinstance(stmt, Bind)]
    tiles = [stmt.dst.buffer for stmt in others if isinstance(stmt, Copy)]
    if len(tiles) == len(set(tiles)):
        return block
    runs: dict[object, list[Stmt]] = {}
    for stmt in others:
        runs.setdefault(stmt.dst.buffer if isinstance(stmt, Copy) else stmt, []).append(stmt)
    return (*names, *(stmt for run in runs.values() for stmt in run))
