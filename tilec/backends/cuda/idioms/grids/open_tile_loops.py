"""Loops in which each block walks over tiles become a grid of tiles.

    launch(num_sms) as b: for w in serial(0, waves): t = w * num_sms + b; if t < tiles: body
    ->
    launch(tiles) as t: body

It is for launches that an author made persistent: strategies walk over the tiles of a grid in an order of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cuda.idioms.grids.tile_boxes import are_apart
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import (
    as_expr,
    cast_to,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    same,
    transform,
    uses,
)
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Atomic,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Store,
    walk,
)
from tilec.ir.traits import buffers, expressions
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.analysis.flow import is_read_next
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.whole_numbers import WholeNumbers, is_zero
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tvm.ir import Expr

#: What trips may hold: nothing that speaks to other blocks or leaves the loop.
PLAIN = (Alloc, Assume, Atomic, Bind, Copy, Fill, For, Gemm, If, Parallel, Pipelined, Reduce, Store)
#: Up to which tile a limit is looked for; axes of a grid.
_MOST_TILES = 1 << 30
_MOST_AXES = 3
_NOTE = "its loop over tiles is a grid of tiles, over which blocks stay as the launch's roles have it"


class OpenTileLoops(LaunchPass):
    """In: a launch whose blocks walk over tiles (T.Persistent, a loop over waves, one from the block's number
    on in steps of the grid, several columns of tiles for each block). Out: a grid with a block for each tile,
    in the order of the author's arithmetic, where trips leave nothing to each other: no tile, fragment or
    scalar that one writes and the next one reads, and no element of a tensor that two of them touch and one
    writes (atomic additions aside)."""

    def launch(self, launch: Launch) -> Launch:
        """The launch over tiles."""
        loop = launch.body[-1] if launch.body else None
        if named(launch) or launch.thread_vars or not isinstance(loop, For):
            return launch
        if not all(isinstance(stmt, (Alloc, Bind)) for stmt in launch.body[:-1]):
            return launch
        found = (tiles for walked in _walks(launch, loop) if (tiles := walked.tiles()) is not None)
        made = next((tiles for tiles in found if _is_independent(tiles)), None)
        return launch if made is None else with_notes(_over(launch, made), [_NOTE])


@dataclass(frozen=True, eq=False)
class _Tiles:
    """The tiles of a launch: ``body`` for each ``number`` from 0 to ``count``, on the grid's ``axis``."""

    axis: int
    number: Var
    count: Expr
    body: Block


def _over(launch: Launch, tiles: _Tiles) -> Launch:
    """A launch with a block for each tile."""
    grid, block_vars = list(launch.grid), list(launch.block_vars)
    count = int_value(tiles.count)
    grid[tiles.axis : tiles.axis + 1] = [tiles.count if count is None else count]
    block_vars[tiles.axis : tiles.axis + 1] = [tiles.number]
    return replace(launch, grid=tuple(grid), block_vars=tuple(block_vars), body=tiles.body)


def _walks(launch: Launch, loop: For) -> Iterator[_Walk]:
    """The ways in which a loop may count tiles: along an axis of the grid, or along one of its own."""
    names = values_of(launch.body)
    start, stop, step = (inlined(part, names) for part in (loop.start, loop.stop, loop.step))
    if any(uses(end, launch.block_vars) for end in (stop, step)):
        return
    whole, analyzer = WholeNumbers(), sym.Analyzer()
    var, trips = whole.name(loop.var), whole.of(stop)
    counts = int_value(start) == 0 and int_value(step) == 1
    if trips is None:
        return
    for axis, (block, extent) in enumerate(zip(launch.block_vars, launch.grid, strict=True)):
        size = as_expr(extent, dtype_of(block))
        grid, name = whole.of(size), whole.name(block)
        if grid is None:
            continue
        if whole.equal(start, block) and whole.equal(step, size):
            yield _Walk(launch, loop, axis, whole, var, stop, trips)
        elif counts:
            waves = isinstance(trips, tirx.FloorDiv) and same(trips.b, grid)
            least = trips.a - grid + 1 if waves else trips * grid
            for number in (var * grid + name, name * trips + var):
                yield _Walk(launch, loop, axis, whole, number, analyzer.simplify(stop * size), least)
    if counts and len(launch.grid) < _MOST_AXES:
        yield _Walk(launch, loop, len(launch.grid), whole, var, stop, trips)


@dataclass(frozen=True, eq=False)
class _Walk:
    """Tiles that trips of a loop are, by their ``number`` in ``whole`` numbers: ``count`` of them, and no
    less than ``least``."""

    launch: Launch
    loop: For
    axis: int
    whole: WholeNumbers
    number: Expr
    count: Expr
    least: Expr

    def tiles(self) -> _Tiles | None:
        """The tiles; None where their number is not all that a trip knows of its block."""
        names = values_of(self.launch.body)
        gone = {self.loop.var, *self.launch.block_vars[self.axis : self.axis + 1]}
        own = {var: value for var, value in names.items() if uses(inlined(value, names), gone)}
        kept = [stmt for stmt in self.launch.body[:-1] if not (isinstance(stmt, Bind) and stmt.var in own)]
        tile = tirx.Var("tile", dtype_of(self.launch.block_vars[0]))
        inner = map_block(self.loop.body, lambda expr: self._numbered(inlined(expr, own), tile))
        if any(uses(expr, gone) for stmt in walk(inner) for expr in expressions(stmt)):
            return None
        count, body = _without_guard(inner, names, tile, self)
        if any(True for _ in loads(count)) or uses(count, self.launch.block_vars):
            return None
        return _Tiles(self.axis, tile, count, (*kept, *body))

    def has(self, limit: Expr) -> bool:
        """Whether there are known to be so many tiles."""
        many = self.whole.of(limit)
        return many is not None and bool(sym.Analyzer().can_prove(many <= self.least))

    def _numbered(self, expr: Expr, tile: Var) -> Expr:
        """``expr`` with the number of a tile in place of what counts it."""

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, (tirx.Add, Var)) or dtype_of(node) not in ("int32", "int64"):
                return None
            value = self.whole.of(node)
            return (
                cast_to(tile, dtype_of(node)) if value is not None and is_zero(value - self.number) else None
            )

        return transform(expr, visit)


# ---- the tiles that there are ----


def _without_guard(body: Block, names: Mapping[Var, Expr], tile: Var, walked: _Walk) -> tuple[Expr, Block]:
    """How many tiles there are, and what is done for each: fewer, and without a condition, where the branch
    around all of it says that the tiles behind a limit do nothing."""
    guard = body[-1]
    names = {**names, **values_of(body)}
    alone = all(isinstance(stmt, (Alloc, Bind)) for stmt in body[:-1])
    if not isinstance(guard, If) or guard.orelse or not alone:
        return walked.count, body
    limit = _limit(inlined(guard.cond, names), tile)
    if limit is None or uses(limit, walked.launch.block_vars):
        return walked.count, body
    count = limit if walked.has(limit) else sym.Analyzer().simplify(tirx.min(limit, walked.count))
    return count, (*body[:-1], *guard.then)


def _limit(cond: Expr, tile: Var) -> Expr | None:
    """The number of the first tile for which a condition does not hold, where it holds for all in front of
    it and for none behind."""
    positive = gap(cond)
    if positive is None or any(True for _ in loads(cond)):
        return None
    linear = linear_in(positive, [tile])
    if linear and int_value(linear[0]) == -1 and not uses(linear[1], (tile,)):
        return linear[1]
    return _searched(cond, tile)


def _searched(cond: Expr, tile: Var) -> Expr | None:
    """The limit of a condition on nothing but the number of a tile."""
    low, high = 0, 1
    while high < _MOST_TILES and _holds(cond, tile, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _holds(cond, tile, middle) else (low, middle)
    inside, outside = (_decided(cond, tile, *ends) for ends in ((0, high), (high, _MOST_TILES)))
    return tirx.const(high, dtype_of(tile)) if inside is True and outside is False else None


def _holds(cond: Expr, tile: Var, number: int) -> bool:
    return _decided(cond, tile, number, number + 1) is True


def _decided(cond: Expr, tile: Var, first: int, end: int) -> bool | None:
    """Whether a condition holds for all tiles of a range, or for none; None where that is not known."""
    analyzer = sym.Analyzer()
    analyzer.bind(tile, tvm_ir.Range(*(tirx.const(number, dtype_of(tile)) for number in (first, end))))
    value = int_value(analyzer.simplify(cond))
    return None if value is None else bool(value)


# ---- what trips leave to each other ----


def _is_independent(tiles: _Tiles) -> bool:
    """Whether tiles may be done in any order, and at once."""
    kept = [stmt.buffer for stmt in tiles.body if isinstance(stmt, Alloc)]
    if not all(isinstance(stmt, PLAIN) for stmt in walk(tiles.body)):
        return False
    if any(
        isinstance(stmt, Atomic) and (stmt.kind != "add" or stmt.prev is not None)
        for stmt in walk(tiles.body)
    ):
        return False
    if any(is_read_next(tiles.body, buffer) for buffer in kept):
        return False
    added = {stmt.buffer for stmt in walk(tiles.body) if isinstance(stmt, Atomic)}
    others = (stmt for stmt in walk(tiles.body) if not isinstance(stmt, Atomic))
    if any(buffer in added for stmt in others for buffer in buffers(stmt)):
        return False
    return are_apart(tiles.body, tiles.number, tiles.count)
