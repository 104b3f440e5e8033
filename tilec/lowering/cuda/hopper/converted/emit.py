"""Device code of converted products: one warp loads, consumer warpgroups convert and multiply.

A consumer reads its packed words of a stage and makes operands from them, four steps along K at a time; while
the products of one batch run it makes the operands of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cuda.hopper.build import cell, i32, let, pin, ptx, put, registers, run, u32, when
from tilec.lowering.cuda.hopper.converted.convert import Converter, twice
from tilec.lowering.cuda.hopper.converted.nodes import ConvertedProduct, StreamLoad
from tilec.lowering.cuda.hopper.emit_ring import EVICTION, Position, tile_bytes_per_stage
from tilec.lowering.cuda.hopper.wgmma import ROW_BYTES, ROWS, STEP_BYTES
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.cuda.hopper.context import Context
    from tilec.lowering.cuda.hopper.load_ahead import Lane

_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
#: To the same place in both blocks of a pair, whose barriers there count the bytes.
_TO_BOTH = ".multicast::cluster"
_CACHED = ".L2::cache_hint"
#: Matrix descriptor (PTX ISA, "Shared Memory Matrix Layout"): 128-byte swizzle, 1024 bytes from one group of
#: eight rows to the next.
_DESCRIPTOR = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
#: Steps along K whose products are issued at once; meanwhile the operands of the next ones are made.
BATCH = 4
#: The barrier of all consumers; those of one warpgroup come first.
_CONSUMERS = 9


# ---- the loading warp ----


def emit_loads(stmt: ConvertedProduct, trips: Expr, waits: bool, ctx: Context) -> None:
    """The loads of all trips, by one thread. A launch that starts early fills the ring with what
    it may read by then before it waits for the launch in front."""
    early = [load for load in stmt.loads if load.early and waits]
    late = [load for load in stmt.loads if load not in early]
    ahead = let("ahead", T.min(trips, i32(stmt.stages)))
    with T.serial(i32(0), ahead, annotations={"disable_unroll": True}) as trip:
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(trip), u32(ctx.ring.bytes))
        _loads(stmt, early, trip, trip, ctx)
    if waits:
        ptx("griddepcontrol.wait")
    with T.serial(i32(0), ahead, annotations={"disable_unroll": True}) as trip:
        _loads(stmt, late, trip, trip, ctx)
    position = Position()
    with T.serial(i32(0), trips - ahead, annotations={"disable_unroll": True}) as trip:
        stage = position.stage[0]
        run(T.cuda.mbarrier_wait(ctx.empty(stage), position.parity[0]))
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(stage), u32(ctx.ring.bytes))
        _loads(stmt, stmt.loads, trip + stmt.stages, stage, ctx)
        position.advance(stmt.stages)


def _loads(
    stmt: ConvertedProduct, loads: Sequence[StreamLoad], trip: Expr, stage: Expr, ctx: Context
) -> None:
    """Some loads of one trip."""
    with ctx.scope({stmt.var: ctx.expr(stmt.start) + trip}):
        for load in loads:
            _load(load, stage, ctx)


def _load(load: StreamLoad, stage: Expr, ctx: Context) -> None:
    """One box per slab."""
    tile = load.dst.buffer
    rows, columns = load.map.box[-2:]
    pitch = columns * element_bytes(str(tile.dtype))
    bytes_of_slab = (int_value(tile.shape[-2]) or 1) * pitch
    first = _tile(tile, stage, ctx)
    start = [ctx.expr(index) for index in load.start]
    name, extra = _LOAD, []
    if load.shared:
        name, extra = name + _TO_BOTH, [tirx.const(0b11, "uint16")]
        start[0] = start[0] + ctx.rank * rows
        first = first + u32(ctx.rank) * u32(rows * pitch)
    if load.evict is not None:
        name, extra = name + _CACHED, [*extra, tirx.const(EVICTION[load.evict], "uint64")]
    for slab in range((int_value(tile.shape[-1]) or 1) // columns):
        at = [start[0], start[1] + slab * columns]
        to = first + u32(slab * bytes_of_slab)
        ptx(name, to, ctx.map_of(load.map), *reversed(at), ctx.full(stage), *extra)


def _tile(tile: Var, stage: Expr, ctx: Context) -> Expr:
    """The shared address of one version of a tile."""
    return ctx.base + u32(ctx.shared.tiles[tile]) + u32(stage) * u32(tile_bytes_per_stage(tile))


# ---- consumers ----


def emit_products(stmt: ConvertedProduct, trips: Expr, team: Expr, ctx: Context, lane: Lane) -> None:
    """The trips of one team, and the sum of all teams' in the first one."""
    sums = ctx.fragments[stmt.c.buffer]
    count = stmt.tile.rows * stmt.tile.columns // 2
    for register in range(count):
        put(sums, tirx.const(0.0, "float32"), register)
    consumer = _Consumer(stmt, ctx, lane, sums)
    stage, parity, trip, previous = cell(team), cell(0), cell(team), cell(-1)
    with T.While(trip[0] < trips):
        run(T.cuda.mbarrier_wait(ctx.full(stage[0]), parity[0]))
        consumer.trip(stage[0], previous)
        put(previous, stage[0])
        put(trip, trip[0] + stmt.teams.depth)
        put(stage, stage[0] + stmt.teams.depth)
        with when(stage[0] >= stmt.stages):
            put(stage, stage[0] - stmt.stages)
            put(parity, T.bitwise_xor(parity[0], i32(1)))
    ptx("wgmma.wait_group.sync.aligned", 0)
    pin(sums, count)
    if stmt.teams.depth > 1:
        _add_teams(stmt, team, ctx, sums, count)


class _Consumer:
    """One warpgroup's work on a stage."""

    def __init__(self, stmt: ConvertedProduct, ctx: Context, lane: Lane, sums: Var) -> None:
        self.stmt, self.ctx, self.lane, self.sums = stmt, ctx, lane, sums
        self.group = let("group_row", T.truncdiv(lane.lane, i32(4)))
        self.quad = let("quad", T.truncmod(lane.lane, i32(4)))
        kind = stmt.tile.types.rpartition(".")[2]
        self.converter = Converter(stmt.packing, kind)
        self.operands = [registers(4 * BATCH, "uint32") for _ in range(2)]

    def trip(self, stage: Expr, previous: Var) -> None:
        """Converts and multiplies one stage; gives back the one before when its products are done."""
        stmt, ctx = self.stmt, self.ctx
        packed = let("packed", _tile(stmt.a.buffer, stage, ctx))
        descriptor = let("b", self._descriptor(stage))
        for block in range(stmt.tile.rows):
            row = let(
                "row", ctx.group * (stmt.tile.rows * ROWS) + block * ROWS + self.lane.warp * 16 + self.group
            )
            words = [self._words(packed, row + below) for below in (0, 8)]
            scales = [self._scales(stage, row + below) for below in (0, 8)]
            for batch in range(stmt.tile.steps // BATCH):
                self._batch(block, batch, words, scales, descriptor)
                if block == 0 and batch == 1:
                    self._release(previous)

    def _words(self, packed: Expr, row: Expr) -> dict[int, Var]:
        """This lane's vectors of a row, prepared for conversion."""
        stmt, tile = self.stmt, self.stmt.a.buffer
        rows = int_value(tile.shape[1]) or 1
        found = next(load for load in stmt.loads if load.dst.buffer.same_as(tile))
        width = found.map.box[-1]
        swizzled = found.map.swizzle > 0
        vectors = {}
        for vector in stmt.packing.vectors:
            slab, chunk = vector * 16 // width, vector * 16 % width // 16
            at = self.quad * stmt.packing.stride + chunk
            if swizzled:
                at = T.bitwise_xor(at, self.group)
            address = packed + u32(row) * u32(width) + u32(at) * u32(16) + u32(slab * rows * width)
            loaded = registers(4, "uint32")
            ptx("ld.shared.v4.b32", *(loaded[word] for word in range(4)), address)
            for word in range(4 if stmt.packing.signed else 0):
                put(loaded, self.converter.prepared(loaded[word]), word)
            vectors[vector] = loaded
        return vectors

    def _scales(self, stage: Expr, row: Expr) -> list[Expr]:
        """The scales of a row's groups, each twice in a word."""
        scale = self.stmt.scale
        if scale is None:
            return []
        groups, columns = (int_value(extent) or 1 for extent in scale.buffer.shape[1:])
        first = _tile(scale.buffer, stage, self.ctx) + u32(row) * u32(2)
        return [let("scale", twice(first + u32(group * columns * 2))) for group in range(groups)]

    def _batch(
        self,
        block: int,
        batch: int,
        words: list[dict[int, Var]],
        scales: list[list[Expr]],
        descriptor: Expr,
    ) -> None:
        """Makes the operands of one batch and issues its products."""
        stmt, held = self.stmt, self.operands[batch % 2]
        ptx("wgmma.wait_group.sync.aligned", 1)
        for step in range(BATCH):
            number = batch * BATCH + step
            for half, place in enumerate(stmt.packing.places[number]):
                for below in range(2):
                    pair = self.converter.pair(words[below][place.vector][place.word], place)
                    if stmt.scale is not None:
                        pair = self.converter.scaled(pair, scales[below][number * 16 // stmt.group])
                    put(held, pair, 4 * step + 2 * half + below)
        ptx("wgmma.fence.sync.aligned")
        half_tile = stmt.tile.columns // 2
        name = f"wgmma.mma_async.sync.aligned.m64n{stmt.tile.columns}k16.{stmt.tile.types}"
        for step in range(BATCH):
            registers_of = [self.sums[block * half_tile + i] for i in range(half_tile)]
            operand = [held[4 * step + word] for word in range(4)]
            at = descriptor + tirx.const(self._step_bytes(batch * BATCH + step) >> 4, "uint64")
            ptx(name, *registers_of, *operand, at, T.ptx.pred(1), 1, 1, 0)
        ptx("wgmma.commit_group.sync.aligned")

    def _step_bytes(self, step: int) -> int:
        """Where a step's columns lie in the second operand's tile."""
        lines = int_value(self.stmt.b.buffer.shape[1]) or 1
        slab, part = divmod(step * STEP_BYTES, ROW_BYTES)
        return slab * lines * ROW_BYTES + part

    def _descriptor(self, stage: Expr) -> Expr:
        address = T.bitwise_and(
            T.shift_right(_tile(self.stmt.b.buffer, stage, self.ctx), u32(4)), u32(0x3FFF)
        )
        return tirx.Cast("uint64", address) + tirx.const(_DESCRIPTOR, "uint64")

    def _release(self, previous: Var) -> None:
        """Each warp gives back the stage that it has read, to every block that writes to it."""
        empty, cluster = self.ctx.empty(previous[0]), self.stmt.cluster
        with when(tirx.And(self.lane.lane < i32(cluster), previous[0] >= 0)):
            if cluster == 1:
                ptx("mbarrier.arrive.shared.b64", empty, u32(1))
                return
            remote = registers(1, "uint32")
            ptx("mapa.shared::cluster.u32", remote[0], empty, u32(self.lane.lane))
            ptx("mbarrier.arrive.shared::cluster.b64", remote[0])


def _add_teams(stmt: ConvertedProduct, team: Expr, ctx: Context, sums: Var, count: int) -> None:
    """The sums of all teams, in the first one's registers, through the memory of the ring."""
    threads = stmt.teams.rows * 128
    own = let("own", ctx.group * 128 + ctx.thread)
    run(_barrier(stmt.teams.consumers * 128))
    with when(team > 0):
        place = ctx.base + (u32(team - 1) * u32(count * threads) + u32(own)) * u32(4)
        for register in range(count):
            ptx("st.shared.f32", place + u32(register * threads * 4), sums[register])
    run(_barrier(stmt.teams.consumers * 128))
    with when(tirx.EQ(team, i32(0))):
        part = registers(1, "float32")
        for other in range(stmt.teams.depth - 1):
            for register in range(count):
                place = ctx.base + u32(own) * u32(4) + u32((other * count + register) * threads * 4)
                ptx("ld.shared.f32", part[0], place)
                put(sums, sums[register] + part[0], register)


def _barrier(threads: int) -> Expr:
    """Waits for all consumers."""
    name = f"tilec_consumers_{threads}"
    wait = f'asm volatile("bar.sync {_CONSUMERS}, {threads};" ::: "memory");'
    return T.cuda.func_call(name, source_code=f"__device__ __forceinline__ void {name}() {{ {wait} }}\n")
