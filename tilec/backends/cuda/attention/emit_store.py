"""Device code of BoxStore: words of a fragment to staging memory by stmatrix, from there by TMA."""

from __future__ import annotations

from tvm import tirx

from tilec.backends.cuda.attention.context import StreamContext
from tilec.backends.cuda.attention.emit_rings import drained, first_thread, group_barrier
from tilec.backends.cuda.attention.nodes import BoxStore
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.warp_roles.build import coordinate, i32, u32
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES, ROWS
from tilec.lowering.emission.statements import sequence
from tilec.lowering.exprs import int_value

_STORE = "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
#: stmatrix.x4 moves blocks of 16 x 16 elements.
_BLOCK = 16


@emit.register(BoxStore)
def _emit_store(stmt: BoxStore, ctx: StreamContext) -> tirx.Stmt:
    columns = int_value(stmt.src.extent[-1]) or 1
    parts: list[tirx.Stmt] = [tirx.IfThenElse(first_thread(ctx), drained(), None), group_barrier(ctx)]
    parts += [_matrix(stmt, column, ctx) for column in range(0, columns, _BLOCK)]
    parts += [call(instruction("fence.proxy.async.shared::cta")()), group_barrier(ctx)]
    return sequence([*parts, tirx.IfThenElse(first_thread(ctx), _send(stmt, columns, ctx), None)])


def _place(stmt: BoxStore, ctx: StreamContext, column: int) -> tirx.Expr:
    """The slab of a column of this warpgroup: slabs of 128 bytes hold the rows of all warpgroups."""
    width = ROW_BYTES // 2
    slab = column // width * ROWS * ctx.warpgroups * ROW_BYTES
    place = ctx.shared(stmt.staging, slab) + u32(ctx.group) * u32(ROWS * ROW_BYTES)
    if stmt.staging not in ctx.positions:
        return place
    stages = int_value(stmt.staging.shape[0]) or 1
    return place + u32(ctx.positions[stmt.staging].stage) * u32(tile_bytes(stmt.staging) // stages)


def _matrix(stmt: BoxStore, column: int, ctx: StreamContext) -> tirx.Stmt:
    """16 x 16 elements of each warp; lane l names row l % 16 of the columns' half l // 16."""
    words = ctx.words[stmt.src.buffer]
    lane = tirx.truncmod(ctx.own, i32(32))
    row = tirx.truncmod(lane, i32(16))
    inside = tirx.truncdiv(ctx.own, i32(32)) * 16 + row
    chunk = tirx.bitwise_xor(
        tirx.truncdiv(lane, i32(16)) + column * 2 % ROW_BYTES // 16, tirx.truncmod(row, i32(8))
    )
    at = _place(stmt, ctx, column) + u32(inside * ROW_BYTES + chunk * 16)
    held = [words[column // 4 + q] for q in range(4)]
    return call(instruction("stmatrix.sync.aligned.m8n8.x4.shared.b16")(at, *held))


def _send(stmt: BoxStore, columns: int, ctx: StreamContext) -> tirx.Stmt:
    width = stmt.map.box[-1]
    axis = next(at for at, extent in enumerate(stmt.map.box) if extent == ROWS)
    start = [coordinate(ctx.value(index)) for index in stmt.start]
    start[axis] = start[axis] + ctx.group * ROWS
    name = _STORE.format(rank=len(start))
    parts = []
    for column in range(0, columns, width):
        at = [*start[:-1], start[-1] + column]
        parts.append(call(instruction(name)(ctx.map_of(stmt.map), *reversed(at), _place(stmt, ctx, column))))
    return sequence([*parts, call(instruction("cp.async.bulk.commit_group")())])


def finish_stores(ctx: StreamContext) -> tirx.Stmt:
    """Waits until shared memory is no longer read by stores."""
    return tirx.IfThenElse(first_thread(ctx), drained(), None)
