"""The walk of persistent blocks over the tiles of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.exchange import GRID_BLOCKS
from tilec.backends.cuda.matmul.context import MatmulContext
from tilec.backends.cuda.matmul.nodes import TileOrder
from tilec.backends.cuda.warp_roles.build import cell, i32, let, put
from tilec.ir.nodes import Launch

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def tile_count(extents: list[Var]) -> Expr:
    """The tiles of a grid."""
    total: Expr = extents[0]
    for extent in extents[1:]:
        total = total * extent
    return total


def each_tile(
    launch: Launch,
    order: TileOrder,
    extents: list[Var],
    block: Var,
    ctx: MatmulContext,
    body: Callable[[], None],
    turn: Expr | None = None,
) -> None:
    """``body`` for every tile of this block, with the block variables of the launch set. Pairs of blocks walk
    pairs of tiles; the second tile of a pair may lie outside of the grid. With a ``turn`` of 0 or 1
    only every other of the block's tiles. Coordinates are kept in registers, so that TVM's simplifier does
    not write their divisions into every address."""
    whole, extents = extents, list(extents)
    step, first = GRID_BLOCKS.call(), block
    if order.pair is not None:
        rest = 0 if order.crosses else 1
        extents[order.pair] = let("pairs", T.truncdiv(extents[order.pair] + rest, i32(2)))
    if order.cluster > 1:
        step = T.truncdiv(step, i32(order.cluster))
        first = let("first", T.truncdiv(block, i32(order.cluster)))
    if turn is not None:
        step, first = let("blocks", step), let("first_turn", first + turn * step)
        step = step * 2
    total = let("total", tile_count(extents))
    straight = total
    if order.crosses:
        assert order.pair is not None
        odd = T.truncmod(whole[order.pair], i32(2))
        total = let("all", total + odd * T.truncdiv(whole[1 - order.pair] + 1, i32(2)))
    step = let("step", step)
    tile = cell(first)
    with T.While(tile[0] < total):
        places = _places(_within(tile[0], straight, order), extents, order)
        if order.pair is not None:
            places[order.pair] = let("own", places[order.pair] * 2 + ctx.rank)
        if order.crosses:
            _cross(places, tile[0] - straight, whole, order, ctx)
        held = [cell(place)[0] for place in places]
        ctx.is_last = tile[0] + step >= total
        with ctx.scope(dict(zip(launch.block_vars, held, strict=True))):
            body()
        put(tile, tile[0] + step)


def _within(number: Expr, straight: Expr, order: TileOrder) -> Expr:
    """The number of a tile of pairs along the axis of pairs, whatever the others have."""
    return T.max(T.min(number, straight - 1), i32(0)) if order.crosses else number


def _cross(places: list[Expr], number: Expr, whole: list[Var], order: TileOrder, ctx: MatmulContext) -> None:
    """The coordinates of a tile at the odd end of the axis of pairs, where ``number``, which counts pairs
    from there, is not negative."""
    assert order.pair is not None
    ctx.crossed = let("crossed", number >= 0)
    last, other = whole[order.pair] - 1, number * 2 + ctx.rank
    places[order.pair] = tirx.Select(ctx.crossed, last, places[order.pair])
    places[1 - order.pair] = tirx.Select(ctx.crossed, other, places[1 - order.pair])


def _places(tile: Expr, extents: list[Var], order: TileOrder) -> list[Expr]:
    """The grid coordinates of a tile number: bands along one axis, the third axis outermost."""
    if len(extents) == 1:
        return [let("tile", tile)]
    rest, places = let("tile", tile), []
    if len(extents) == 3:
        plane = let("plane", extents[0] * extents[1])
        places = [let("z", T.truncdiv(rest, plane))]
        rest = let("in_plane", rest - places[0] * plane)
    banded, other = (extents[1], extents[0]) if order.axis == 1 else (extents[0], extents[1])
    if order.crosses:  # a single tile along the axis of pairs is in no pair along it
        banded, other = T.max(banded, i32(1)), T.max(other, i32(1))
    size = let("band_tiles", other * order.band)
    across, along = cell(0), cell(0)
    first = T.If(tirx.And(rest < size, banded >= order.band))
    with first:  # the first band of a launch of one wave: no division is worth waiting for
        with T.Then():
            put(across, T.truncdiv(rest, i32(order.band)))
            put(along, T.truncmod(rest, i32(order.band)))
        with T.Else():
            band = let("band", T.truncdiv(rest, size))
            inside = let("in_band", rest - band * size)
            width = let("band_width", T.min(i32(order.band), banded - band * order.band))
            put(across, T.truncdiv(inside, width))
            put(along, band * order.band + inside - across[0] * width)
    across, along = across[0], along[0]
    return [*((across, along) if order.axis == 1 else (along, across)), *places]
