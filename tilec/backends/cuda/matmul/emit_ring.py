"""Device code of rings: the producer's loads, the consumers' products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.matmul.emit_gather import fetch, place
from tilec.backends.cuda.matmul.emit_promotion import Promoter
from tilec.backends.cuda.matmul.nodes import GatherLoad, RingDrain, RingFill, WarpgroupGemm
from tilec.backends.cuda.warp_roles.build import (
    cell,
    coordinate,
    i32,
    let,
    pin,
    ptx,
    put,
    registers,
    run,
    u32,
    when,
)
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.position import Position
from tilec.backends.cuda.warp_roles.ring import stage_bytes
from tilec.backends.cuda.warp_roles.tma import EVICTION
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES, ROWS, STEP_BYTES
from tilec.ir.nodes import Bind, Region
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.context import MatmulContext
    from tilec.backends.cuda.matmul.emit_early import EarlyLoads
    from tilec.backends.cuda.matmul.turns import Turns

_LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
#: To the same place in both blocks of a cluster, whose barriers there count the bytes.
_TO_BOTH = ".multicast::cluster"
_CACHED = ".L2::cache_hint"
#: Matrix descriptor (PTX ISA, "Shared Memory Matrix Layout"): 128-byte swizzle, 1024 bytes from one group of
#: eight rows to the next. The field at bit 16 is the step between slabs where rows run along K's other side.
_SWIZZLED, _GROUP_STEP, _SLAB_BIT = 1 << 62, (1024 >> 4) << 32, 16


def emit_fill(
    stmt: RingFill, ctx: MatmulContext, position: Position, early: EarlyLoads | None = None
) -> None:
    """The loads of all trips: by one thread, or by all loaders where some are gathered. ``early``: some do
    not wait for the launches in front."""
    announced = sum(stage_bytes(inner.dst.buffer) for inner in stmt.body if isinstance(inner, TmaLoad))
    gathers = any(isinstance(inner, GatherLoad) for inner in stmt.body)
    ctx.mark(stmt)
    start, stop = ctx.expr(stmt.start), ctx.expr(stmt.stop)
    if ctx.order.split > 1:
        trips = let("trips", T.max(stop - start, i32(0)))
        start, stop = start + _part_start(trips, ctx, 0), start + _part_start(trips, ctx, 1)
    if early is not None:
        _fill_early(stmt, ctx, position, early, (start, stop), announced)
        return
    with T.serial(start, stop, annotations={"disable_unroll": True}) as trip:
        stage = position.stage
        with ctx.scope({stmt.var: trip, stmt.stage: stage}):
            _bind(stmt, ctx)
            fetched = [(inner, fetch(inner, ctx)) for inner in stmt.body if isinstance(inner, GatherLoad)]
            run(T.cuda.mbarrier_wait(ctx.empty(stage), position.other_parity))
            with when(tirx.EQ(ctx.loader, i32(0))) if gathers and announced else nullcontext():
                _start_loads(stmt, ctx, stage, announced)
            for inner, made in fetched:
                ctx.mark(inner)
                place(inner, made, ctx)
            if gathers:
                _arrive(ctx, stage)
        position.advance()


def _bind(stmt: RingFill, ctx: MatmulContext) -> None:
    for inner in stmt.body:
        if isinstance(inner, Bind):
            ctx.env[inner.var] = let(str(inner.var.name), ctx.expr(inner.value))


def _start_loads(
    stmt: RingFill, ctx: MatmulContext, stage: Expr, announced: int, early: bool = False
) -> None:
    """What TMA brings, by one thread; of a trip with ``early`` loads those, and the number of all bytes."""
    if announced:
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(stage), u32(announced))
    for inner in stmt.body:
        if isinstance(inner, TmaLoad) and (inner.early or not early):
            ctx.mark(inner)
            _load(inner, ctx)


def _fill_early(
    stmt: RingFill,
    ctx: MatmulContext,
    position: Position,
    early: EarlyLoads,
    ends: tuple[Expr, Expr],
    announced: int,
) -> None:
    """The loads of all trips, the early ones of the first stages before all others."""
    start, stop = let("first_trip", ends[0]), ends[1]

    def fill(number: Expr) -> None:
        with ctx.scope({stmt.var: start + number, stmt.stage: number}):
            _bind(stmt, ctx)
            _start_loads(stmt, ctx, number, announced, early=True)

    early.begin(stop - start, fill)
    with T.serial(start, stop, annotations={"disable_unroll": True}) as trip:
        stage = position.stage
        with ctx.scope({stmt.var: trip, stmt.stage: stage}):
            _bind(stmt, ctx)
            with when(early.are_left(trip - start)):
                run(T.cuda.mbarrier_wait(ctx.empty(stage), position.other_parity))
                _start_loads(stmt, ctx, stage, announced, early=True)
            for inner in stmt.body:
                if isinstance(inner, TmaLoad) and not inner.early:
                    _load(inner, ctx)
        position.advance()
    early.end()


def _arrive(ctx: MatmulContext, stage: Expr) -> None:
    """What this warp has stored is there, for the tensor core too."""
    ptx("fence.proxy.async.shared::cta")
    ptx("bar.warp.sync", u32(0xFFFFFFFF))
    with when(tirx.EQ(T.truncmod(ctx.loader, i32(32)), i32(0))):
        ptx("mbarrier.arrive.shared.b64", ctx.full(stage), u32(1))


def _load(stmt: TmaLoad, ctx: MatmulContext) -> None:
    """What this block brings of a tile: its half to both blocks of a pair, or all to itself."""
    half = stmt.map.box[-2]
    if not stmt.crosses:
        _load_rows(stmt, ctx, ctx.rank * half if stmt.shared else i32(0), to_both=stmt.shared)
        return
    assert ctx.crossed is not None
    with T.If(ctx.crossed if stmt.shared else tirx.Not(ctx.crossed)):
        with T.Then():
            _load_rows(stmt, ctx, i32(0), to_both=False)
            _load_rows(stmt, ctx, i32(half), to_both=False)
        with T.Else():
            _load_rows(stmt, ctx, ctx.rank * half, to_both=True)


def _load_rows(stmt: TmaLoad, ctx: MatmulContext, row: Expr, to_both: bool) -> None:
    """The rows of a box from ``row`` of the tile on, one box per slab of 128 bytes."""
    tile = stmt.dst.buffer
    rows, width = int_value(tile.shape[-2]) or 1, stmt.map.box[-1]
    stage = ctx.expr(stmt.dst.start[0])
    first = ctx.version(tile, stage)
    first = first + u32(row) * u32(ROW_BYTES)
    start = [coordinate(ctx.expr(index)) for index in stmt.start]
    start[-2] = start[-2] + row
    name = _LOAD.format(rank=len(start), mode="im2col" if stmt.offsets else "tile")
    extra = [tirx.Cast("uint16", ctx.expr(offset)) for offset in reversed(stmt.offsets)]
    if to_both:
        name, extra = name + _TO_BOTH, [*extra, tirx.const(0b11, "uint16")]
    if stmt.evict is not None:
        name, extra = name + _CACHED, [*extra, tirx.const(EVICTION[stmt.evict], "uint64")]
    for slab in range(-(-(int_value(stmt.dst.extent[-1]) or 1) // width)):
        to = first + u32(slab * rows * ROW_BYTES)
        at = [*start[:-1], start[-1] + slab * width]
        ptx(name, to, ctx.map_of(stmt.map), *reversed(at), ctx.full(stage), *extra)


def _part_start(trips: Expr, ctx: MatmulContext, after: int) -> Expr:
    """The first trip of this block's part, or of the part ``after`` it."""
    return T.truncdiv((ctx.rank + after) * trips, i32(ctx.order.split))


def emit_drain(stmt: RingDrain, ctx: MatmulContext, position: Position, turns: Turns | None = None) -> None:
    """The products of all trips; with ``turns`` while no other warpgroup issues its own."""
    (gemm,) = (inner for inner in stmt.body if isinstance(inner, WarpgroupGemm))
    ctx.mark(gemm)
    trips = let("trips", ctx.expr(stmt.trips))
    some = ctx.facts.prove(stmt.trips > 0) is True
    if ctx.order.split > 1:
        trips = let("own_trips", _part_start(trips, ctx, 1) - _part_start(trips, ctx, 0))
        some = False
    if turns is not None:
        turns.begin()
    if stmt.promotes:
        _drain_promoting(stmt, gemm, trips, ctx, position)
        if turns is not None:
            turns.end()
    else:
        _drain_in_flight(stmt, gemm, trips, some, ctx, position, turns)
    if turns is not None:
        position.skip(trips)


def _trips(stmt: RingDrain, trips: Expr) -> AbstractContextManager[Expr]:
    options = {} if stmt.unrolled else {"annotations": {"disable_unroll": True}}
    return T.serial(i32(0), trips, **options)  # type: ignore[no-any-return]


def _registers(gemm: WarpgroupGemm) -> int:
    """Registers of a thread's share of the tile."""
    return gemm.tile.rows * gemm.tile.columns // 2


def _clear(sums: Var, count: int) -> None:
    for register in range(count):
        put(sums, tirx.const(0, str(sums.dtype)), register)


def _drain_promoting(
    stmt: RingDrain, gemm: WarpgroupGemm, trips: Expr, ctx: MatmulContext, position: Position
) -> None:
    """Every trip's sum is added to the accumulator."""

    def issue(part: Var) -> Expr:
        stage = let("stage", position.stage)
        run(T.cuda.mbarrier_wait(ctx.full(stage), position.parity))
        with ctx.scope({stmt.stage: stage}):
            _issue(gemm, ctx, tirx.const(0, "int32"), part)
        position.advance()
        return stage

    Promoter(stmt, gemm, ctx, issue, lambda stage: _release(ctx, stage)).drain(trips)


def _drain_in_flight(
    stmt: RingDrain,
    gemm: WarpgroupGemm,
    trips: Expr,
    some: bool,
    ctx: MatmulContext,
    position: Position,
    turns: Turns | None,
) -> None:
    """One trip's product is in flight while the next is issued, where there is a stage for each of them: else
    the producer would wait for the one stage, and the consumers for the next trip. ``some``: there is a
    trip."""
    count, sums = _registers(gemm), ctx.held[gemm.c.buffer]
    ahead = stmt.ring.stages > 1
    if not some:
        with when(trips <= 0):
            _clear(sums, count)
    previous = cell(0)
    with _trips(stmt, trips) as trip:
        stage = position.stage
        run(T.cuda.mbarrier_wait(ctx.full(stage), position.parity))
        with ctx.scope({stmt.stage: stage}):
            _issue(gemm, ctx, trip > 0, sums)
        ptx("wgmma.wait_group.sync.aligned", int(ahead))
        with when(trip > 0) if ahead else nullcontext():
            _release(ctx, previous[0] if ahead else stage)
        if ahead:
            put(previous, stage)
        position.advance()
    if turns is not None:
        turns.end()
    if ahead:
        ptx("wgmma.wait_group.sync.aligned", 0)
        with nullcontext() if some else when(trips > 0):
            _release(ctx, previous[0])
    pin(sums, count)


def _release(ctx: MatmulContext, stage: Expr) -> None:
    """A stage is free, in every block whose loads write to it."""
    if ctx.order.listeners == 1:
        with when(tirx.EQ(ctx.own, i32(0))):
            ptx("mbarrier.arrive.shared.b64", ctx.empty(stage), u32(1))
        return
    with when(ctx.own < ctx.order.listeners):
        remote = registers(1, "uint32")
        ptx("mapa.shared::cluster.u32", remote[0], ctx.empty(stage), u32(ctx.own))
        ptx("mbarrier.arrive.shared::cluster.b64", remote[0])


def _issue(gemm: WarpgroupGemm, ctx: MatmulContext, adds: Expr, sums: Var) -> None:
    """All instructions of one stage; ``adds`` is false where the sum starts."""
    tile = gemm.tile
    narrow, whole = element_bytes(str(gemm.a.buffer.dtype)) == 1, str(sums.dtype) == "uint32"
    a = _Operand(gemm.a, gemm.trans_a, ctx)
    b = _Operand(gemm.b, not gemm.trans_b, ctx)
    first_a = let("a", a.descriptor(a.rows(ctx.share * tile.rows)))
    first_b = let("b", b.descriptor(u32(0)))
    depth = STEP_BYTES if narrow else STEP_BYTES // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k{depth}.{tile.types}"
    signs = [] if whole else [1, 1]
    sides = [] if narrow else [int(gemm.trans_a), int(not gemm.trans_b)]
    ptx("wgmma.fence.sync.aligned")
    for step in range(tile.steps):
        for row in range(tile.rows):
            registers_of = [sums[row * tile.columns // 2 + i] for i in range(tile.columns // 2)]
            ptx(
                name,
                *registers_of,
                first_a + _units(a.step(step) + row * a.block_bytes),
                first_b + _units(b.step(step)),
                T.ptx.pred(adds if step == 0 else 1),
                *signs,
                *sides,
            )
    ptx("wgmma.commit_group.sync.aligned")


def _units(count: int) -> Expr:
    """Bytes in the unit of descriptors."""
    return tirx.const(count >> 4, "uint64")


class _Operand:
    """Addresses of one operand of wgmma in the current stage. ``across``: its rows of 128 bytes run along M
    or N, else along K."""

    def __init__(self, region: Region, across: bool, ctx: MatmulContext) -> None:
        tile = region.buffer
        self._across = across
        self._lines = int_value(tile.shape[1]) or 1
        self._first = ctx.version(tile, ctx.expr(region.start[0]))

    @property
    def slab(self) -> int:
        """Bytes of one slab: 128 bytes of every row of the tile."""
        return self._lines * ROW_BYTES

    @property
    def block_bytes(self) -> int:
        """From one block of 64 rows of M to the next."""
        return self.slab if self._across else ROWS * ROW_BYTES

    def rows(self, block: Expr) -> Expr:
        """Byte offset of a block of 64 rows of M."""
        return u32(block) * u32(self.block_bytes)

    def step(self, number: int) -> int:
        """Byte offset of a step of 32 bytes along K: 16 rows of it, or a quarter of a row."""
        if self._across:
            return number * STEP_BYTES // 2 * ROW_BYTES
        slab, part = divmod(number, ROW_BYTES // STEP_BYTES)
        return slab * self.slab + part * STEP_BYTES

    def descriptor(self, offset: Expr) -> Expr:
        """The matrix descriptor of the block at ``offset``."""
        step = self.slab >> 4 if self._across else 1
        high = _SWIZZLED | _GROUP_STEP | step << _SLAB_BIT
        address = T.bitwise_and(T.shift_right(self._first + offset, u32(4)), u32(0x3FFF))
        return tirx.Cast("uint64", address) + tirx.const(high, "uint64")
