"""Device code of epilogues: arithmetic in the registers of an accumulator, and how the results leave."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.warp_roles.emit.build import (
    cached,
    coordinate,
    i32,
    let,
    pin,
    ptx,
    registers,
    u32,
    when,
)
from tilec.backends.cuda.warp_roles.emit.elements import emit_elements, packing, pair_values, wide
from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane, Loaded, LoadsAhead
from tilec.backends.cuda.warp_roles.emit.rows import Ends, send_rows
from tilec.backends.cuda.warp_roles.emit.staging import (
    STORE,
    boxes,
    drain_stores,
    first_thread,
    group_barrier,
    staging_buffer,
)
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.stores import stores_alone
from tilec.ir.exprs import walk
from tilec.ir.nodes import Store
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import expressions
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.emit.residual import Residual
    from tilec.backends.cuda.warp_roles.nodes import TileStore

_STRAIGHT = "stmatrix.sync.aligned.m8n8.x4.shared.b16"
_TURNED = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
#: stmatrix.x4 moves blocks of 16 x 16 elements; TMA buffers have rows of 32, 64 or 128 bytes.
_BLOCK = 16


def emit_store(stmt: TileStore, ctx: TileContext, lane: Lane, residual: Residual | None = None) -> None:
    """One epilogue loop; what it reads where it stores comes from ``residual``."""
    for var, extent in zip(stmt.vars, (stmt.extents[0], stmt.extents[1] * stmt.parts), strict=True):
        ctx.facts.bind_range(var, 0, extent)
    ctx.mark(stmt)
    condition, body = conditioned(stmt.body)
    if not stmt.columns:
        emit_elements(stmt, ctx, lane)
        _pin_bits(stmt, ctx)
        return
    if condition is None:
        _staged(stmt, ctx, lane, residual)
        return
    with ctx.scope({stmt.vars[0]: ctx.share * stmt.rows + (stmt.rows - 1)}):
        whole = let("whole", ctx.value(condition))
    whole_tile = replace(stmt, body=body)
    if stores_alone(body):
        _staged(whole_tile, ctx, lane, None, Ends(condition, whole))
        return
    with T.If(whole):
        with T.Then():
            _staged(whole_tile, ctx, lane, None)
        with T.Else():
            emit_elements(stmt, ctx, lane)


def _pin_bits(stmt: TileStore, ctx: TileContext) -> None:
    """Sums that are made of bits become floats here: ptxas makes the products of the next tile wait for each
    other where the compiler hands integers on to them."""
    values = [value for inner in walk_statements(stmt.body) for value in expressions(inner)]
    if not any(call_name(node) == "reinterpret" for value in values for node in walk(value)):
        return
    for buffer in written_in(stmt.body) & set(ctx.held):
        pin(ctx.held[buffer], stmt.rows * stmt.extents[1] // WARPGROUP)


# ---- through a staging buffer ----


def _staged(
    stmt: TileStore, ctx: TileContext, lane: Lane, residual: Residual | None, ends: Ends | None = None
) -> None:
    """Chunks of columns: convert, stmatrix, then a TMA store or rows by all threads; the stores of earlier
    chunks go on meanwhile."""
    ahead = LoadsAhead(stmt, ctx, lane)
    for chunk, start in enumerate(stmt.chunks):
        buffer = staging_buffer(stmt, ctx, chunk)
        if residual is not None:
            residual.wait(chunk)
        elif chunk == 0 or chunk >= stmt.buffers:
            _wait_for_buffer(ctx, 0 if chunk == 0 else stmt.buffers - 1)
        for block in range(stmt.rows // ROWS):
            _fill_rows(stmt, ctx, lane, buffer, block, start, ahead, residual)
        if stmt.map is not None:
            ptx("fence.proxy.async.shared::cta")
        group_barrier(ctx)
        if stmt.map is None:
            send_rows(stmt, ctx, lane, buffer, chunk, ends)
            continue
        with _of_whole_tiles(ends), when(first_thread(ctx)):
            _send(stmt, ctx, buffer, chunk)
            if residual is not None:
                residual.go_on(chunk)
        if ends is not None:
            with when(tirx.Not(ends.whole)):
                send_rows(stmt, ctx, lane, buffer, chunk, ends)


def _fill_rows(
    stmt: TileStore,
    ctx: TileContext,
    lane: Lane,
    buffer: Expr,
    block: int,
    start: int,
    ahead: LoadsAhead,
    residual: Residual | None,
) -> None:
    """A chunk's columns of a block of rows to its buffer, matrix by matrix."""
    firsts = {column: _first(stmt, block, start + column) for column in range(0, stmt.columns, _BLOCK)}
    pairs = [first + quarter * 2 for first in firsts.values() for quarter in range(4)]
    loaded = ahead.of(pairs)
    for column, first in firsts.items():
        at = buffer + _matrix_row(stmt, lane, block, column)
        for quarter, pair in enumerate(residual.pairs(at) if residual is not None else ()):
            loaded[first + quarter * 2].append(pair)
        _matrix(stmt, ctx, lane, at, first, loaded)


def _of_whole_tiles(ends: Ends | None) -> AbstractContextManager[None]:
    return nullcontext() if ends is None else when(ends.whole)


def _wait_for_buffer(ctx: TileContext, pending: int) -> None:
    with when(first_thread(ctx)):
        drain_stores(pending)
    group_barrier(ctx)


def _first(stmt: TileStore, block: int, column: int) -> int:
    """The register of the first element of a column in a block of 64 rows."""
    return block * stmt.extents[1] // 2 + column // 2


def _matrix(
    stmt: TileStore,
    ctx: TileContext,
    lane: Lane,
    at: Expr,
    first: int,
    loaded: Loaded,
) -> None:
    """One block of 16 x 16 elements of each warp to its places in the staging buffer."""
    packed = registers(4, "uint32")
    for quarter in range(4):
        _pack(stmt, ctx, lane, packed, quarter, first + quarter * 2, loaded)
    ptx(_TURNED if stmt.turned else _STRAIGHT, at, *[packed[quarter] for quarter in range(4)])


def _matrix_row(stmt: TileStore, lane: Lane, block: int, column: int) -> Expr:
    """Byte offset in the staging buffer of the row of 16 bytes that a lane names to stmatrix."""
    if stmt.turned:
        row, half = T.truncmod(lane.lane, i32(8)), T.truncmod(T.truncdiv(lane.lane, i32(8)), i32(2))
        below = T.truncdiv(lane.lane, i32(16)) * 8 + row
        place = T.bitwise_xor(lane.warp * 2 + half, row)
        return u32((block * stmt.columns + column) * ROWS * 2) + u32(below * (ROWS * 2) + place * 16)
    pitch = stmt.columns * 2
    row = T.truncmod(lane.lane, i32(16))
    swap = T.truncmod(T.truncdiv(row * pitch, i32(128)), i32(pitch // 16))
    place = T.bitwise_xor(T.truncdiv(lane.lane, i32(16)) + column // 8, swap)
    return u32(block * ROWS * pitch) + u32((lane.warp * 16 + row) * pitch + place * 16)


def _pack(
    stmt: TileStore, ctx: TileContext, lane: Lane, packed: Var, quarter: int, register: int, loaded: Loaded
) -> None:
    """Two neighbours, converted, in one register."""
    last = stmt.body[-1]
    assert isinstance(last, Store)
    values = pair_values(stmt, wide(last.value), ctx, lane, register, loaded)
    ptx(packing(last), packed[quarter], values[1], values[0])


def _send(stmt: TileStore, ctx: TileContext, buffer: Expr, chunk: int) -> None:
    last = stmt.body[-1]
    assert isinstance(last, Store)
    assert stmt.map is not None
    name, policy = cached(STORE.format(rank=len(last.indices)), stmt.evict)
    for offset, start in boxes(stmt, ctx, chunk, tuple(last.indices)):
        ptx(name, ctx.map_of(stmt.map), *map(coordinate, reversed(start)), buffer + u32(offset), *policy)
    ptx("cp.async.bulk.commit_group")
