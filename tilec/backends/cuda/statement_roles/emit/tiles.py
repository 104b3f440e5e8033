"""EachTile: a block takes tile after tile of the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.tensor_memory import PAIR
from tilec.backends.cuda.device.exchange import GRID_BLOCKS
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.nodes import EachTile
from tilec.backends.cuda.warp_roles.emit.build import add, cell, emits, i32, let, put
from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import convert

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@emits(EachTile)
def _tiles(stmt: EachTile, ctx: DeviceContext) -> None:
    """The tiles of this block, gridDim.x apart. Coordinates are kept in registers, so that no simplifier
    writes their divisions into every address."""
    total: Expr = i32(1)
    sizes = [_int32(extent, ctx) for extent in stmt.grid]
    first, step = ctx.tile_block, GRID_BLOCKS.call()
    assert first is not None
    if stmt.pair is not None:
        sizes[stmt.pair] = T.truncdiv(sizes[stmt.pair] + 1, i32(PAIR))
        first, step = (T.truncdiv(each, i32(PAIR)) for each in (first, step))
    extents = [let(f"tiles_{axis}", size) for axis, size in enumerate(sizes)]
    for extent in extents:
        total = total * extent
    total, step = let("total", total), let("step", step)
    tile = cell(first + step * i32(stmt.turn))
    with T.While(tile[0] < total):
        places = _places(tile[0], extents, stmt.band)
        if stmt.pair is not None:
            places[stmt.pair] = places[stmt.pair] * i32(PAIR) + T.truncmod(ctx.tile_block, i32(PAIR))
        held = [cell(place)[0] for place in places]
        with ctx.scope():
            for var, place in zip(ctx.block_vars, held, strict=True):
                ctx.env[var] = place if dtype_of(var) == "int32" else tirx.Cast(dtype_of(var), place)
            add(ctx.block(stmt.body))
        put(tile, tile[0] + step * i32(stmt.turns))


def _int32(extent: int | Expr, ctx: DeviceContext) -> Expr:
    return i32(extent) if isinstance(extent, int) else convert(ctx.value(extent), "int32")


def _places(tile: Expr, extents: list[Var], band: int) -> list[Expr]:
    """The coordinates of a tile: along the first axis first, or in bands of so many along the second one."""
    places: list[Expr] = []
    rest: Expr = let("tile", tile)
    if band and len(extents) > 1:
        plane = let("plane", extents[0] * extents[1])
        inside = let("in_plane", T.truncmod(rest, plane)) if len(extents) > 2 else rest
        size = let("band_tiles", extents[0] * i32(band))
        number = let("band", T.truncdiv(inside, size))
        within = let("in_band", inside - number * size)
        width = let("band_width", T.min(i32(band), extents[1] - number * i32(band)))
        places = [T.truncdiv(within, width), number * i32(band) + T.truncmod(within, width)]
        rest = T.truncdiv(rest, plane)
        extents = extents[2:]
    for number, extent in enumerate(extents):
        last = number == len(extents) - 1
        places.append(rest if last else T.truncmod(rest, extent))
        rest = rest if last else let("rest", T.truncdiv(rest, extent))
    return places
