"""LaneCopy as global_load_lds: lanes take pieces of a tile in the order in which they lie in shared memory.

The instruction writes to a place of the wave, which M0 has, plus the number of a lane times the size of a
piece (AMD's instruction set architecture document of MI300, loads to LDS, of 4 bytes; pieces of 16 bytes:
LLVM's processor gfx950). A swizzle is in what a lane reads: it finds the element that belongs to its
place."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.device.helper import Helper
from tilec.backends.cuda.device.moves import cp_async
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.hip.copies.nodes import LaneCopy
from tilec.errors import CompileError, Kind
from tilec.ir.exprs import all_of, dtype_of, int32
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Copy, Parallel, Store
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.emission.storage import convert, element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext

#: Bytes of a lane on some chip (`Chip.lane_bytes`).
PIECES = (16, 4)
#: Bytes of shared memory that M0 tells apart: it has 16 bits for the place of a wave (AMD's instruction set
#: architecture document of MI300).
REACH = 1 << 16


@cache
def lane_copy(size: int) -> Helper:
    """What a lane's piece of ``size`` bytes becomes: that of its address, or zeros where the last argument
    is 0."""
    copy, name = cp_async(size), f"tilec_lane_copy_{size}"
    return Helper(name, copy.text.replace(copy.name, name), copy.meaning)


@emit.register(LaneCopy)
def _emit_lane_copy(stmt: LaneCopy, ctx: DeviceContext) -> tirx.Stmt | None:
    _check_place(stmt, ctx)
    pieces = prod(int(extent) for extent in stmt.dst.extent) // stmt.width
    threads = ctx.warps * WARP
    return sequence([_round(stmt, first, pieces, ctx) for first in range(0, pieces, threads)])


def _check_place(stmt: LaneCopy, ctx: DeviceContext) -> None:
    """CompileError where other tiles have moved a tile out of reach."""
    tile = stmt.dst.buffer
    if ctx.places[tile] + tile_bytes(Alloc(tile)) <= REACH:
        return
    raise CompileError(
        f"{tile.name} ends {REACH} bytes or more from the start of shared memory",
        why="copies that go there straight do not reach so far",
        remedy="use smaller tiles, or num_stages = 1",
        kind=Kind.SHARED_MEMORY,
    )


def _round(stmt: LaneCopy, first: int, pieces: int, ctx: DeviceContext) -> tirx.Stmt:
    """The copy of the threads' next piece each."""
    loop = expand_copy(Copy(stmt.src, stmt.dst))
    assert isinstance(loop, Parallel)
    (store,) = loop.body
    assert isinstance(store, Store)
    assert ctx.thread is not None
    piece = ctx.fresh("piece", "int32")
    binds: list[tirx.Stmt] = [tirx.Bind(piece, ctx.thread + int32(first))]
    target = ctx.storage(stmt.dst.buffer)
    begin = convert(ctx.value(stmt.dst.start[0]), "int32") * int32(pieces * stmt.width)
    place = begin + piece * int32(stmt.width)
    with ctx.scope():
        element = ctx.fresh("element", "int32")
        binds.append(tirx.Bind(element, element_at(target.layout, place) - begin))
        binds += _parts(loop, element, ctx)
        copy = _copy(stmt, store, place, ctx)
    whole = first + ctx.warps * WARP <= pieces
    return sequence([*binds, copy if whole else guarded(copy, [tirx.LT(piece, int32(pieces))])])


def _parts(loop: Parallel, element: Expr, ctx: DeviceContext) -> list[tirx.Stmt]:
    """The variables of a loop over a tile, defined for the element of this number."""
    binds: list[tirx.Stmt] = []
    step = 1
    for var, extent in reversed(list(zip(loop.vars, loop_extents(loop), strict=True))):
        ctx.facts.bind_range(var, 0, extent)
        own = tirx.truncmod(tirx.truncdiv(element, int32(step)), int32(extent))
        binds.append(tirx.Bind(ctx.define(var), convert(own, dtype_of(var))))
        step *= extent
    return binds


def element_at(layout: Layout | None, place: Any) -> Any:
    """The number, row by row, of the element in a place (an integer or an expression): a swizzle is its own
    inverse."""
    if layout is None:
        return place
    assert canonical(Layout(layout.digits)) == canonical(Layout.row_major(layout.shape)), layout
    return place if layout.swizzle is None else layout.swizzle.apply(place)


def _copy(stmt: LaneCopy, store: Store, place: Expr, ctx: DeviceContext) -> tirx.Stmt:
    source = store.value
    conds = open_bounds(source.source, tuple(source.indices), ctx)
    conds = [tirx.const(False, "bool")] if conds is None else conds
    target, origin = ctx.storage(stmt.dst.buffer), ctx.storage(stmt.src.buffer)
    start = origin.offset([ctx.value(index) for index in source.indices])
    size = stmt.width * element_bytes(str(stmt.dst.buffer.dtype))
    count: Expr = int32(size)
    if conds:
        count = tirx.Select(ctx.value(all_of(conds)), count, int32(0))
    return call(lane_copy(size).call(target.data.ptr_to([place]), origin.data.ptr_to([start]), count))
