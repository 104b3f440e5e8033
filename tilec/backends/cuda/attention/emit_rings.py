"""Device code of rings and tensor copies of streamed launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.context import StreamContext
from tilec.backends.cuda.attention.nodes import RingPut, RingRelease, RingWait, TripLoop, ZeroRows
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.warp_roles.build import coordinate, i32, u32
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.nodes import Bind
from tilec.lowering.emission.loops import counted
from tilec.lowering.emission.statements import sequence
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr

_LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
#: Barriers of a block by number: 1 to 3 are those of one warpgroup, 4 to 6 hand on turns.
_GROUP_BARRIER, _CHUNK = 1, 16


@emit.register(TripLoop)
def _emit_trips(stmt: TripLoop, ctx: StreamContext) -> tirx.Stmt | None:
    once = {"disable_unroll": True}
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, tirx.ForKind.SERIAL, ctx, once)


@emit.register(RingPut)
def _emit_put(stmt: RingPut, ctx: StreamContext) -> tirx.Stmt:
    ring = stmt.ring
    parts = [
        call(T.cuda.mbarrier_wait(ctx.empty(ring), tirx.bitwise_xor(ctx.parity(ring), i32(1)))),
        call(instruction("mbarrier.arrive.expect_tx.shared.b64")(ctx.full(ring), u32(ring.bytes))),
    ]
    for inner in stmt.body:
        if isinstance(inner, TmaLoad):
            parts += _loads(inner, stmt, ctx)
        elif isinstance(inner, Bind):
            parts.append(emit(inner, ctx))
    return sequence([*parts, *ctx.positions[ring.tile].advance()])


def _loads(load: TmaLoad, put: RingPut, ctx: StreamContext) -> list[tirx.Stmt]:
    """One box for each slab of 128 bytes of columns."""
    rows, columns = (int_value(extent) or 1 for extent in load.dst.extent[-2:])
    width = load.map.box[-1]
    first = ctx.shared(put.ring.tile) + u32(ctx.stage(put.ring)) * u32(put.ring.bytes)
    start = [coordinate(ctx.value(index)) for index in load.start]
    name = _LOAD.format(rank=len(start))
    return [
        call(
            instruction(name)(
                first + u32(slab * rows * ROW_BYTES),
                ctx.map_of(load.map),
                *reversed([*start[:-1], start[-1] + slab * width]),
                ctx.full(put.ring),
            )
        )
        for slab in range(columns // width)
    ]


@emit.register(RingWait)
def _emit_wait(stmt: RingWait, ctx: StreamContext) -> tirx.Stmt:
    return call(T.cuda.mbarrier_wait(ctx.full(stmt.ring), ctx.parity(stmt.ring)))


@emit.register(RingRelease)
def _emit_release(stmt: RingRelease, ctx: StreamContext) -> tirx.Stmt:
    """One thread arrives for its warpgroup, whose products have completed: the one that stores."""
    arrive = call(instruction("mbarrier.arrive.shared.b64")(ctx.empty(stmt.ring), u32(1)))
    done = sequence([drained(), arrive]) if stmt.stored else arrive
    met = [group_barrier(ctx)] if stmt.meets else []
    return sequence(
        [*met, tirx.IfThenElse(first_thread(ctx), done, None), *ctx.positions[stmt.ring.tile].advance()]
    )


def drained() -> tirx.Stmt:
    """Waits until the stores of this thread have read shared memory."""
    return call(instruction("cp.async.bulk.wait_group.read")(0))


def first_thread(ctx: StreamContext) -> Expr:
    """Whether this is the first thread of its warpgroup."""
    return tirx.EQ(ctx.own, i32(0))


def group_barrier(ctx: StreamContext) -> tirx.Stmt:
    """All threads of the warpgroup."""
    return call(instruction("bar.sync")(u32(ctx.group + i32(_GROUP_BARRIER)), 128))


@emit.register(ZeroRows)
def _emit_zero_rows(stmt: ZeroRows, ctx: StreamContext) -> tirx.Stmt:
    """Each warpgroup writes all zeros for itself: its products read them next, and other warpgroups write the
    same. Skipped where the last row is to be kept."""
    tile = stmt.tile.buffer
    rows, columns = (int_value(extent) or 1 for extent in tile.shape[-2:])
    slabs = columns * 2 // ROW_BYTES
    size = rows * columns * 2
    first = ctx.shared(tile) + u32(ctx.value(stmt.tile.start[0])) * u32(size)
    trip = ctx.fresh("piece", "int32")
    with ctx.scope():
        row = ctx.define(stmt.row)
        keep = ctx.value(stmt.keep)
        ctx.env[stmt.row] = i32(rows - 1)
        all_kept = ctx.value(stmt.keep)
    piece = ctx.own + trip * 128
    index = tirx.truncmod(tirx.truncdiv(piece, i32(ROW_BYTES // _CHUNK)), i32(rows))
    zero = T.uint32(0)
    write = call(instruction("st.shared.v4.b32")(first + u32(piece * _CHUNK), zero, zero, zero, zero))
    body = tirx.SeqStmt([tirx.Bind(row, index), tirx.IfThenElse(tirx.Not(keep), write, None)])
    count = rows * slabs * (ROW_BYTES // _CHUNK) // 128
    loop = tirx.For(trip, i32(0), i32(count), tirx.ForKind.SERIAL, body)
    fence = call(instruction("fence.proxy.async.shared::cta")())
    return tirx.IfThenElse(tirx.Not(all_kept), tirx.SeqStmt([loop, fence, group_barrier(ctx)]), None)
