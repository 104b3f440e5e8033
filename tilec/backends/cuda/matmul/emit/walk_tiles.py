"""The walk of persistent blocks over the tiles of a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.exchange import GRID_BLOCKS
from tilec.backends.cuda.matmul.assign.bands import PANEL
from tilec.backends.cuda.matmul.emit.context import MatmulContext
from tilec.backends.cuda.matmul.nodes import RingFill, TileOrder
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, put, tile_count
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.ring import stage_bytes
from tilec.ir.nodes import Launch

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def each_tile(
    launch: Launch,
    order: TileOrder,
    extents: list[Var],
    block: Var,
    ctx: MatmulContext,
    body: Callable[[], None],
    turn: Expr | None,
) -> None:
    """``body`` for every tile of this block, with the block variables of the launch set. Pairs of blocks walk
    pairs of tiles; the second tile of a pair may lie outside of the grid. With a ``turn`` of 0 or 1
    only every other of the block's tiles. Coordinates are kept in registers, so that TVM's simplifier does
    not write their divisions into every address."""
    whole, extents = extents, list(extents)
    if order.pair is not None:
        rest = 0 if order.crosses else 1
        extents[order.pair] = let("pairs", T.truncdiv(extents[order.pair] + rest, i32(2)))
    first, step = _walk(order, block, turn)
    total = let("total", tile_count(extents))
    straight = total
    if order.crosses:
        assert order.pair is not None
        odd = T.truncmod(whole[order.pair], i32(2))
        total = let("all", total + odd * T.truncdiv(whole[1 - order.pair] + 1, i32(2)))
    step = let("step", step)
    tile = cell(first)
    with T.While(tile[0] < total):
        places = _places(_within(tile[0], straight, order), extents, order, ctx.band_bits)
        if order.pair is not None:
            places[order.pair] = let("own", places[order.pair] * 2 + ctx.rank)
        if order.crosses:
            _cross(places, tile[0] - straight, whole, order, ctx)
        held = [cell(place)[0] for place in places]
        ctx.is_last = tile[0] + step >= total
        with ctx.scope(dict(zip(launch.block_vars, held, strict=True))):
            body()
        put(tile, tile[0] + step)


def _walk(order: TileOrder, block: Var, turn: Expr | None) -> tuple[Expr, Expr]:
    """The number of the first tile of a block, and how far its tiles are apart."""
    step, first = GRID_BLOCKS.call(), block
    if order.cluster > 1:
        step = T.truncdiv(step, i32(order.cluster))
        first = let("first", T.truncdiv(block, i32(order.cluster)))
    if turn is None:
        return first, step
    step, first = let("blocks", step), let("first_turn", first + turn * step)
    return first, step * 2


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


def _places(tile: Expr, extents: list[Var], order: TileOrder, bits: Expr | None) -> list[Expr]:
    """The grid coordinates of a tile number: bands along one axis, the third axis outermost. ``bits``: of the
    width of bands, where it is known late."""
    wide = i32(order.band) if bits is None else let("band_tiles_along", T.shift_left(i32(1), bits))
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
    size = let("band_tiles", other * wide)
    across, along = cell(0), cell(0)
    first = T.If(tirx.And(rest < size, banded >= wide))
    with first:  # the first band of a launch of one wave: no division is worth waiting for
        with T.Then():
            put(across, T.truncdiv(rest, wide) if bits is None else T.shift_right(rest, bits))
            put(along, T.truncmod(rest, wide) if bits is None else T.bitwise_and(rest, wide - 1))
        with T.Else():
            band = let("band", T.truncdiv(rest, size))
            inside = let("in_band", rest - band * size)
            width = let("band_width", T.min(wide, banded - band * wide))
            put(across, T.truncdiv(inside, width))
            put(along, band * wide + inside - across[0] * width)
    across, along = across[0], along[0]
    return [*((across, along) if order.axis == 1 else (along, across)), *places]


def band_bits(fill: RingFill, ctx: MatmulContext) -> Expr | None:
    """The bits of a tile's number in its band, where bands narrow; None where they do not: half as many tiles
    where what the rows of a band load does not stay in L2."""
    if not ctx.order.narrows:
        return None
    rows = next(stmt for stmt in fill.body if isinstance(stmt, TmaLoad)).dst.buffer
    most, bits = PANEL // (ctx.order.band * stage_bytes(rows)), ctx.order.band.bit_length() - 1
    deep = ctx.value(fill.stop - fill.start) > most
    return let("band_bits", tirx.Select(deep, i32(bits - 1), i32(bits)))
