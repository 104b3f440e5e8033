"""Device code of products of packed weights: one warp loads, consumer warpgroups convert and multiply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.exchange import UNIFORM
from tilec.backends.cuda.packed_weights.consume import Consumer, meet
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.packed_weights.warp_products import WarpConsumer, add_slices
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, ptx, put, registers, run, u32, when
from tilec.backends.cuda.warp_roles.emit.load import emit_load
from tilec.backends.cuda.warp_roles.emit.position import Position
from tilec.backends.cuda.warp_roles.emit.tail import Tails
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane

#: The first trip of a block, and how many it has.
Part: TypeAlias = "tuple[Expr, Expr]"


# ---- the loading warp ----


def emit_loads(stmt: PackedProduct, part: Part, waits: bool, ctx: TileContext) -> None:
    """The loads of a block's trips, by one thread. A launch that starts early fills the ring with what
    it may read by then before it waits for the launch in front."""
    ctx.mark(stmt)
    Tails(stmt.loads, ctx).apart(lambda tails: _all_loads(stmt, part, waits, ctx, tails))


def _all_loads(stmt: PackedProduct, part: Part, waits: bool, ctx: TileContext, tails: Tails) -> None:
    first, trips = part
    early = [load for load in stmt.loads if load.early and waits]
    late = [load for load in stmt.loads if load not in early]
    announced = tails.bytes(ctx.ring.bytes)
    ahead = let("ahead", T.min(trips, i32(stmt.stages)))
    with T.serial(i32(0), ahead, annotations={"disable_unroll": True}) as trip:
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(trip), announced)
        _loads(stmt, early, first + trip, trip, ctx, tails)
    if waits:
        ptx("griddepcontrol.wait")
    with T.serial(i32(0), ahead, annotations={"disable_unroll": True}) as trip:
        _loads(stmt, late, first + trip, trip, ctx, tails)
    position = Position(stmt.stages)
    with T.serial(i32(0), trips - ahead, annotations={"disable_unroll": True}) as trip:
        stage = position.stage
        run(T.cuda.mbarrier_wait(ctx.empty(stage), position.parity))
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(stage), announced)
        _loads(stmt, stmt.loads, first + trip + stmt.stages, stage, ctx, tails)
        position.advance()


def _loads(
    stmt: PackedProduct,
    loads: Sequence[TmaLoad],
    trip: Expr,
    stage: Expr,
    ctx: TileContext,
    tails: Tails,
) -> None:
    """Some loads of one trip."""
    with ctx.scope({stmt.var: ctx.value(stmt.start) + trip}):
        for load in loads:
            tails.bring(load, lambda each, rows: _load(each, rows, stage, ctx))


def _load(load: TmaLoad, rows: Expr, stage: Expr, ctx: TileContext) -> None:
    """All of a tile by a box of ``rows``, or this block's half of it to both blocks of a pair."""
    part = None
    if load.shared:
        pitch = load.map.box[-1] * element_bytes(str(load.dst.buffer.dtype))
        part = (ctx.rank * rows, u32(ctx.rank * rows) * u32(pitch))
    emit_load(load, ctx, stage, ctx.full(stage), part, to_both=load.shared)


# ---- consumers ----


def emit_products(stmt: PackedProduct, trips: Expr, team: Expr, ctx: TileContext, lane: Lane) -> None:
    """The trips of one team, and the sum of all teams' in the first one."""
    ctx.mark(stmt)
    sums = ctx.held[stmt.c.buffer]
    count = stmt.tile.rows * stmt.tile.columns // 2
    for register in range(count):
        put(sums, tirx.const(0.0, "float32"), register)
    consumer = WarpConsumer(stmt, ctx, lane) if stmt.slices else Consumer(stmt, ctx, lane, sums)
    position, trip = Position(stmt.stages, team), cell(team)
    with T.While(trip[0] < trips):
        current = let("stage", UNIFORM.call(position.stage))
        run(T.cuda.mbarrier_wait(ctx.full(current), position.parity))
        consumer.trip(current)
        put(trip, trip[0] + stmt.teams.depth)
        position.step(stmt.teams.depth)
    if isinstance(consumer, WarpConsumer):
        add_slices(consumer, team, sums)
        return
    consumer.finish()
    if stmt.teams.depth > 1:
        _add_teams(stmt, team, ctx, sums, count)


def _add_teams(stmt: PackedProduct, team: Expr, ctx: TileContext, sums: Var, count: int) -> None:
    """The sums of all teams, in the first one's registers, through the memory of the ring."""
    threads = stmt.teams.rows * 128
    own = let("own", ctx.warpgroup * 128 + ctx.own)
    meet(stmt.teams.consumers * 128)
    with when(team > 0):
        place = ctx.base + (u32(team - 1) * u32(count * threads) + u32(own)) * u32(4)
        for register in range(count):
            ptx("st.shared.f32", place + u32(register * threads * 4), sums[register])
    meet(stmt.teams.consumers * 128)
    with when(tirx.EQ(team, i32(0))):
        part = registers(1, "float32")
        for other in range(stmt.teams.depth - 1):
            for register in range(count):
                place = ctx.base + u32(own) * u32(4) + u32((other * count + register) * threads * 4)
                ptx("ld.shared.f32", part[0], place)
                put(sums, sums[register] + part[0], register)
