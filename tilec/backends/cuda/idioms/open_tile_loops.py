"""Loops in which each block walks over tiles become a grid of tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cuda.idioms.flow import is_read_next
from tilec.backends.cuda.idioms.tile_boxes import are_apart, boxes_of
from tilec.backends.cuda.idioms.whole_numbers import WholeNumbers
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, same, transform, uses
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
from tilec.ir.traits import expressions
from tilec.lowering.analysis.facts import gap
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.passes.expand_copies import cast_to
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr

#: What trips may hold: nothing that speaks to other blocks or leaves the loop.
_PLAIN = (Alloc, Assume, Atomic, Bind, Copy, Fill, For, Gemm, If, Parallel, Pipelined, Reduce, Store)
#: Up to which tile a limit is looked for.
_MOST_TILES = 1 << 30
_NOTE = "its loop over tiles is a grid of tiles, over which blocks stay as the launch's roles have it"


class OpenTileLoops(LaunchPass):
    """In: a launch whose blocks walk over tiles (T.Persistent, a loop over waves, one from the block's number
    on in steps of the grid). Out: a grid with a block for each tile, in the order of the author's arithmetic,
    where trips leave nothing to each other: no tile, fragment or scalar that one writes and the next one
    reads, and no element of a tensor that two of them touch and one writes (atomic additions aside)."""

    def launch(self, launch: Launch) -> Launch:
        """The launch over tiles."""
        if named(launch) or launch.thread_vars or len(launch.grid) != 1 or not launch.body:
            return launch
        tiles = _tiles(launch)
        if tiles is None or not _is_independent(launch, tiles):
            return launch
        made = replace(launch, grid=(_short(tiles.count),), block_vars=(tiles.number,), body=tiles.body)
        return with_notes(made, [_NOTE])


@dataclass(frozen=True, eq=False)
class _Tiles:
    """The tiles of a launch: ``body`` for each ``number`` from 0 to ``count``."""

    number: Var
    count: Expr
    body: Block


def _tiles(launch: Launch) -> _Tiles | None:
    """The tiles over which the loop that ends a launch walks; None where there is none."""
    *head, loop = launch.body
    if not isinstance(loop, For) or not all(isinstance(stmt, (Alloc, Bind)) for stmt in head):
        return None
    names = {stmt.var: stmt.value for stmt in head if isinstance(stmt, Bind)}
    (block,) = launch.block_vars
    own = {var: value for var, value in names.items() if uses(inlined(value, names), (block,))}
    kept = tuple(stmt for stmt in head if not (isinstance(stmt, Bind) and stmt.var in own))
    ends = (inlined(part, names) for part in (loop.start, loop.stop, loop.step))
    walked = _Walk(block, launch.grid[0], loop.var, *ends)
    tile = tirx.Var("tile", dtype_of(block))
    body = walked.numbered(map_block(loop.body, lambda expr: inlined(expr, own)), tile)
    if body is None:
        return None
    count, body = _without_guard(body, names, tile, walked)
    return None if any(True for _ in loads(count)) else _Tiles(tile, count, (*kept, *body))


class _Walk:
    """Which tiles a block takes in a loop: its ``block`` of ``grid``, the loop's variable and ends."""

    def __init__(self, block: Var, grid: int | Expr, var: Var, start: Expr, stop: Expr, step: Expr) -> None:
        self._whole, self._analyzer = WholeNumbers(), sym.Analyzer()
        self._block, self._var, self._grid = block, var, _expr(grid, block)
        self._start, self._stop, self._step = start, stop, step

    def numbered(self, body: Block, tile: Var) -> Block | None:
        """``body`` over the number of its tile; None where that is not all that it knows of its block."""
        if any(uses(end, (self._block,)) for end in (self._stop, self._step)):
            return None
        numbers = self._numbers()
        made = map_block(body, lambda expr: transform(expr, lambda node: self._tile(node, numbers, tile)))
        left = {self._block, self._var}
        if any(uses(expr, left) for stmt in walk(made) for expr in expressions(stmt)):
            return None
        return made

    @property
    def _in_steps(self) -> bool:
        """Whether the loop goes from the block's number on in steps of the grid."""
        return self._equal(self._start, self._block) and self._equal(self._step, self._grid)

    def _numbers(self) -> list[Expr]:
        """What counts tiles, as whole numbers: each in one trip of one block."""
        block, var = self._whole.name(self._block), self._whole.name(self._var)
        grid, stop = self._whole.of(self._grid), self._whole.of(self._stop)
        if grid is None or stop is None:
            return []
        if self._in_steps:
            return [var]
        waves = int_value(self._start) == 0 and int_value(self._step) == 1
        return [var * grid + block, block * stop + var] if waves else []

    def _tile(self, node: Expr, numbers: list[Expr], tile: Var) -> Expr | None:
        """The number of a tile in place of what counts it."""
        if not isinstance(node, (tirx.Add, Var)) or dtype_of(node) not in ("int32", "int64"):
            return None
        value = self._whole.of(node)
        found = value is not None and any(self._is_zero(value - number) for number in numbers)
        return cast_to(tile, dtype_of(node)) if found else None

    @property
    def count(self) -> Expr:
        """How many tiles there may be."""
        return self._stop if self._in_steps else self._analyzer.simplify(self._stop * self._grid)

    def has(self, limit: Expr) -> bool:
        """Whether there are known to be so many tiles: n where waves are n / grid, rounded up."""
        waves, grid, many = (self._whole.of(part) for part in (self._stop, self._grid, limit))
        if waves is None or grid is None or many is None:
            return False
        least = waves if self._in_steps else waves * grid
        if not self._in_steps and isinstance(waves, tirx.FloorDiv) and same(waves.b, grid):
            least = waves.a - grid + 1
        return bool(self._analyzer.can_prove(many <= least))

    def _equal(self, one: Expr, other: Expr) -> bool:
        left, right = self._whole.of(one), self._whole.of(other)
        return left is not None and right is not None and self._is_zero(left - right)

    def _is_zero(self, value: Expr) -> bool:
        return int_value(self._analyzer.simplify(value)) == 0


# ---- the tiles that there are ----


def _without_guard(body: Block, names: Mapping[Var, Expr], tile: Var, walked: _Walk) -> tuple[Expr, Block]:
    """How many tiles there are, and what is done for each: fewer, and without a condition, where the branch
    around all of it says that the tiles behind a limit do nothing."""
    guard = body[-1]
    names = {**names, **{stmt.var: stmt.value for stmt in body if isinstance(stmt, Bind)}}
    alone = all(isinstance(stmt, (Alloc, Bind)) for stmt in body[:-1])
    if not isinstance(guard, If) or guard.orelse or not alone:
        return walked.count, body
    limit = _limit(inlined(guard.cond, names), tile)
    if limit is None:
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
    if linear and int_value(linear[0]) == -1:
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


def _is_independent(launch: Launch, tiles: _Tiles) -> bool:
    """Whether tiles may be done in any order, and at once."""
    kept = [stmt.buffer for stmt in tiles.body if isinstance(stmt, Alloc)]
    if not all(isinstance(stmt, _PLAIN) for stmt in walk(tiles.body)):
        return False
    if any(
        isinstance(stmt, Atomic) and (stmt.kind != "add" or stmt.prev is not None)
        for stmt in walk(tiles.body)
    ):
        return False
    if any(is_read_next(tiles.body, buffer) for buffer in kept):
        return False
    added = {stmt.buffer for stmt in walk(tiles.body) if isinstance(stmt, Atomic)}
    boxes = boxes_of(tiles.body)
    if any(box.buffer in added for box in boxes):
        return False
    return are_apart(boxes, tiles.number, tiles.count)


def _short(count: Expr) -> int | Expr:
    value = int_value(count)
    return count if value is None else value


def _expr(extent: int | Expr, var: Var) -> Expr:
    return tirx.const(extent, dtype_of(var)) if isinstance(extent, int) else extent
