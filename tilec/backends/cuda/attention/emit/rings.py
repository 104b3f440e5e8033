"""Device code of rings and tensor copies of attention."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import RingPut, RingRelease, RingWait, TripLoop, ZeroRows
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.warp_roles.emit.barriers import arrive
from tilec.backends.cuda.warp_roles.emit.build import add, emits, i32, ptx, run, u32, when
from tilec.backends.cuda.warp_roles.emit.load import emit_load
from tilec.backends.cuda.warp_roles.emit.staging import drain_stores, first_thread, group_barrier
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Bind
from tilec.lowering.emission.loops import counted

#: Bytes that a thread writes at once.
_CHUNK = 16


@emit.register(TripLoop)
def _emit_trips(stmt: TripLoop, ctx: AttentionContext) -> tirx.Stmt | None:
    kind = tirx.ForKind.SERIAL
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, kind, ctx, disable_unroll=True)


@emits(RingPut)
def _put(stmt: RingPut, ctx: AttentionContext) -> None:
    ring, position = stmt.ring, ctx.positions[stmt.ring.tile]
    run(T.cuda.mbarrier_wait(ctx.empty(ring), position.other_parity))
    ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(ring), u32(ring.bytes))
    for inner in stmt.body:
        if isinstance(inner, TmaLoad):
            emit_load(inner, ctx, position.stage, ctx.full(ring))
        elif isinstance(inner, Bind):
            add(emit(inner, ctx))
    position.advance()


@emits(RingWait)
def _wait(stmt: RingWait, ctx: AttentionContext) -> None:
    run(T.cuda.mbarrier_wait(ctx.full(stmt.ring), ctx.positions[stmt.ring.tile].parity))


@emits(RingRelease)
def _release(stmt: RingRelease, ctx: AttentionContext) -> None:
    """One thread arrives for its warpgroup, whose products have completed: the one that stores."""
    if stmt.meets:
        group_barrier(ctx)
    with when(first_thread(ctx)):
        if stmt.stored:
            drain_stores()
        arrive(ctx.empty(stmt.ring))
    ctx.positions[stmt.ring.tile].advance()


@emits(ZeroRows)
def _zero_rows(stmt: ZeroRows, ctx: AttentionContext) -> None:
    """Each warpgroup writes all zeros for itself: its products read them next, and other warpgroups write the
    same. Skipped where the last row is to be kept."""
    tile = stmt.tile.buffer
    rows, columns = (int_value(extent) or 1 for extent in tile.shape[-2:])
    slabs = columns * 2 // ROW_BYTES
    first = ctx.shared(tile) + u32(ctx.value(stmt.tile.start[0])) * u32(rows * columns * 2)
    with ctx.scope():
        row = ctx.define(stmt.row)
        keep = ctx.value(stmt.keep)
        ctx.env[stmt.row] = i32(rows - 1)
        all_kept = ctx.value(stmt.keep)
    count = rows * slabs * (ROW_BYTES // _CHUNK) // 128
    with when(tirx.Not(all_kept)):
        with T.serial(i32(0), i32(count)) as trip:
            IRBuilder.name("piece", trip)
            piece = ctx.own + trip * 128
            index = tirx.truncmod(tirx.truncdiv(piece, i32(ROW_BYTES // _CHUNK)), i32(rows))
            T.Bind(index, var=row)
            with when(tirx.Not(keep)):
                zero = T.uint32(0)
                ptx("st.shared.v4.b32", first + u32(piece * _CHUNK), zero, zero, zero, zero)
        ptx("fence.proxy.async.shared::cta")
        group_barrier(ctx)
