"""Device code of rings: the producer's loads, the consumers' products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.wgmma import STEP_BYTES
from tilec.backends.cuda.matmul.emit.front import clear_fronts
from tilec.backends.cuda.matmul.emit.gather import fetch, place
from tilec.backends.cuda.matmul.emit.name_quotients import with_named_quotients
from tilec.backends.cuda.matmul.emit.promotion import Promoter
from tilec.backends.cuda.matmul.nodes import ClearFront, GatherLoad, RingDrain, RingFill, WarpgroupGemm
from tilec.backends.cuda.matmul.passes.issue_wide import wide_product
from tilec.backends.cuda.warp_roles.emit.barriers import arrive, meet_warp
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, pin, ptx, put, run, u32, when
from tilec.backends.cuda.warp_roles.emit.load import emit_load
from tilec.backends.cuda.warp_roles.emit.operands import Operand
from tilec.backends.cuda.warp_roles.emit.position import Position
from tilec.backends.cuda.warp_roles.emit.staging import first_thread
from tilec.backends.cuda.warp_roles.emit.tail import Tails
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.ring import stage_bytes
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.nodes import Bind
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.emit.early import EarlyLoads
    from tilec.backends.cuda.matmul.emit.turns import Turns


def emit_fill(stmt: RingFill, ctx: MatmulContext, position: Position, early: EarlyLoads | None) -> None:
    """The loads of all trips: by one thread, or by all loaders where some are gathered. ``early``: some do
    not wait for the launches in front."""
    loads = [inner for inner in stmt.body if isinstance(inner, TmaLoad)]
    ctx.mark(stmt)
    stmt = with_named_quotients(stmt)
    start, stop = ctx.value(stmt.start), ctx.value(stmt.stop)
    if ctx.order.split > 1:
        trips = let("trips", T.max(stop - start, i32(0)))
        start, stop = start + _part_start(trips, ctx, 0), start + _part_start(trips, ctx, 1)
    ends = let("first_trip", start), let("last_trip", stop)
    if early is None:
        Tails(loads, ctx).apart(lambda tails: _fill(stmt, ctx, position, ends, tails))
    else:
        Tails(loads, ctx).apart(lambda tails: _fill_early(stmt, ctx, position, early, ends, tails))


def await_release(ctx: MatmulContext, position: Position) -> None:
    """Waits until all stages are given back: a block at which others arrive may not end before."""
    with T.serial(i32(0), i32(ctx.ring.stages), annotations={"disable_unroll": True}):
        run(T.cuda.mbarrier_wait(ctx.empty(position.stage), position.other_parity))
        position.advance()


def _announced(loads: Sequence[TmaLoad], tails: Tails) -> Expr:
    """The bytes that a stage's loads bring."""
    return tails.bytes(sum(stage_bytes(load.dst.buffer) for load in loads))


def _fill(
    stmt: RingFill, ctx: MatmulContext, position: Position, ends: tuple[Expr, Expr], tails: Tails
) -> None:
    """The loads of all trips, none of which may be early."""
    loads = [inner for inner in stmt.body if isinstance(inner, TmaLoad)]
    announced = _announced(loads, tails)
    gathers = any(isinstance(inner, GatherLoad) for inner in stmt.body)
    with T.serial(*ends, annotations={"disable_unroll": True}) as trip:
        stage = position.stage
        with ctx.scope({stmt.var: trip, stmt.stage: stage}):
            _bind(stmt, ctx)
            fetched = [(inner, fetch(inner, ctx)) for inner in stmt.body if isinstance(inner, GatherLoad)]
            run(T.cuda.mbarrier_wait(ctx.empty(stage), position.other_parity))
            with when(tirx.EQ(ctx.loader, i32(0))) if gathers and loads else nullcontext():
                _start_loads(stmt, ctx, stage, announced, tails)
            for inner, made in fetched:
                ctx.mark(inner)
                place(inner, made, ctx)
            if gathers:
                _arrive(ctx, stage)
        position.advance()


def _bind(stmt: RingFill, ctx: MatmulContext) -> None:
    for inner in stmt.body:
        if isinstance(inner, Bind):
            ctx.env[inner.var] = let(str(inner.var.name), ctx.value(inner.value))


def _start_loads(
    stmt: RingFill, ctx: MatmulContext, stage: Expr, announced: Expr, tails: Tails, early: bool = False
) -> None:
    """What TMA brings, by one thread; of a trip with ``early`` loads those, and the number of all bytes."""
    loads = [inner for inner in stmt.body if isinstance(inner, TmaLoad)]
    if loads:
        ptx("mbarrier.arrive.expect_tx.shared.b64", ctx.full(stage), announced)
    for load in loads:
        if load.early or not early:
            ctx.mark(load)
            tails.bring(load, lambda each, rows: _load(each, rows, ctx))


def _fill_early(
    stmt: RingFill,
    ctx: MatmulContext,
    position: Position,
    early: EarlyLoads,
    ends: tuple[Expr, Expr],
    tails: Tails,
) -> None:
    """The loads of all trips, the early ones of the first stages before all others."""
    start, stop = ends
    announced = _announced([inner for inner in stmt.body if isinstance(inner, TmaLoad)], tails)

    def fill(number: Expr) -> None:
        with ctx.scope({stmt.var: start + number, stmt.stage: number}):
            _bind(stmt, ctx)
            _start_loads(stmt, ctx, number, announced, tails, early=True)

    early.begin(stop - start, fill)
    with T.serial(start, stop, annotations={"disable_unroll": True}) as trip:
        stage = position.stage
        with ctx.scope({stmt.var: trip, stmt.stage: stage}):
            _bind(stmt, ctx)
            with when(early.are_left(trip - start)):
                run(T.cuda.mbarrier_wait(ctx.empty(stage), position.other_parity))
                _start_loads(stmt, ctx, stage, announced, tails, early=True)
            for inner in stmt.body:
                if isinstance(inner, TmaLoad) and not inner.early:
                    tails.bring(inner, lambda each, rows: _load(each, rows, ctx))
        position.advance()
    early.end()


def _arrive(ctx: MatmulContext, stage: Expr) -> None:
    """What this warp has stored is there, for the tensor core too."""
    ptx("fence.proxy.async.shared::cta")
    meet_warp()
    with when(tirx.EQ(T.truncmod(ctx.loader, i32(32)), i32(0))):
        arrive(ctx.full(stage))


def _load(stmt: TmaLoad, rows: Expr, ctx: MatmulContext) -> None:
    """What this block brings of a tile by boxes of ``rows``: its half to both blocks of a pair, or all to
    itself."""
    if not stmt.crosses:
        _load_rows(stmt, ctx, ctx.rank * rows if stmt.shared else i32(0), to_both=stmt.shared)
        return
    assert ctx.crossed is not None
    with T.If(ctx.crossed if stmt.shared else tirx.Not(ctx.crossed)):
        with T.Then():
            _load_rows(stmt, ctx, i32(0), to_both=False)
            _load_rows(stmt, ctx, rows, to_both=False)
        with T.Else():
            _load_rows(stmt, ctx, ctx.rank * rows, to_both=True)


def _load_rows(stmt: TmaLoad, ctx: MatmulContext, row: Expr, to_both: bool) -> None:
    """The rows of a box from ``row`` of the tile on."""
    stage = ctx.value(stmt.dst.start[0])
    emit_load(stmt, ctx, stage, ctx.full(stage), (row, u32(row) * u32(ROW_BYTES)), to_both)


def _part_start(trips: Expr, ctx: MatmulContext, after: int) -> Expr:
    """The first trip of this block's part, or of the part ``after`` it."""
    return T.truncdiv((ctx.rank + after) * trips, i32(ctx.order.split))


def emit_drain(stmt: RingDrain, ctx: MatmulContext, position: Position, turns: Turns | None) -> None:
    """The products of all trips; with ``turns`` while no other warpgroup issues its own."""
    products = [found for found in map(wide_product, stmt.body) if found]
    ctx.mark(products[0][0])
    trips, first = let("trips", ctx.value(stmt.trips)), tirx.const(0, "int32")
    some = ctx.facts.prove(stmt.trips > 0) is True
    if ctx.order.split > 1:
        first = let("first", _part_start(trips, ctx, 0))
        trips = let("own_trips", _part_start(trips, ctx, 1) - first)
        some = False
    if turns is not None:
        turns.begin()
    fronts = [inner for inner in stmt.body if isinstance(inner, ClearFront)]
    if fronts:
        with nullcontext() if some else when(tirx.And(tirx.EQ(first, i32(0)), trips > 0)):
            clear_fronts(stmt, fronts, ctx, position)
    if stmt.promotes:
        ((gemm,),) = products
        _drain_promoting(stmt, gemm, (first, trips), ctx, position)
        if turns is not None:
            turns.end()
    else:
        _drain_in_flight(stmt, products, trips, some, ctx, position, turns)
    if turns is not None:
        turns.leave(trips)


def _trips(stmt: RingDrain, trips: Expr) -> AbstractContextManager[Expr]:
    options = {} if stmt.unrolled else {"annotations": {"disable_unroll": True}}
    return T.serial(i32(0), trips, **options)  # type: ignore[no-any-return]


def _clear(sums: Var, count: int) -> None:
    for register in range(count):
        put(sums, tirx.const(0, str(sums.dtype)), register)


def _drain_promoting(
    stmt: RingDrain,
    gemm: WarpgroupGemm,
    part: tuple[Expr, Expr],
    ctx: MatmulContext,
    position: Position,
) -> None:
    """Every trip's sum is added to the accumulator. ``part``: the block's first trip, and how many it has."""
    first, trips = part

    def issue(part: Var) -> Expr:
        stage = let("stage", position.stage)
        run(T.cuda.mbarrier_wait(ctx.full(stage), position.parity))
        with ctx.scope({stmt.stage: stage}):
            _issue([(gemm,)], {gemm.c.buffer: part}, ctx, tirx.const(0, "int32"))
        position.advance()
        return stage

    Promoter(stmt, gemm, ctx, first, issue, lambda stage: _release(ctx, stage)).drain(trips)


def _drain_in_flight(
    stmt: RingDrain,
    products: Sequence[Sequence[WarpgroupGemm]],
    trips: Expr,
    some: bool,
    ctx: MatmulContext,
    position: Position,
    turns: Turns | None,
) -> None:
    """One trip's products are in flight while the next are issued, where there is a stage for each trip: else
    the producer would wait for the one stage, and the consumers for the next trip. ``some``: there is a
    trip."""
    gemms = [gemm for wide in products for gemm in wide]
    sums = {gemm.c.buffer: ctx.held[gemm.c.buffer] for gemm in gemms}
    held = {sums[gemm.c.buffer]: gemm.tile.registers for gemm in gemms}
    ahead = stmt.ring.stages > 1
    if not some:
        with when(trips <= 0):
            for registers, count in held.items():
                _clear(registers, count)
    previous = cell(0)
    with _trips(stmt, trips) as trip:
        stage = position.stage
        run(T.cuda.mbarrier_wait(ctx.full(stage), position.parity))
        with ctx.scope({stmt.stage: stage}):
            _issue(products, sums, ctx, trip > 0)
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
    for registers, count in held.items():
        pin(registers, count)


def _release(ctx: MatmulContext, stage: Expr) -> None:
    """A stage is free, in every block whose loads write to it."""
    if ctx.order.listeners == 1:
        with when(first_thread(ctx)):
            arrive(ctx.empty(stage))
        return
    with when(ctx.own < ctx.order.listeners):
        arrive(ctx.empty(stage), ctx.own)


def _issue(
    products: Sequence[Sequence[WarpgroupGemm]], sums: Mapping[Var, Var], ctx: MatmulContext, adds: Expr
) -> None:
    """All instructions of one stage, each product into its ``sums``, as one group; ``adds`` is false where
    these start. ``products``: those that are one, side by side."""
    ptx("wgmma.fence.sync.aligned")
    started: set[Var] = set()
    for wide in products:
        own = [gemm.c.buffer for gemm in wide]
        more = tirx.const(1, "int32") if own[0] in started else adds
        _multiply(wide, [sums[each] for each in own], ctx, more)
        started.update(own)
    ptx("wgmma.commit_group.sync.aligned")


def _multiply(wide: Sequence[WarpgroupGemm], sums: Sequence[Var], ctx: MatmulContext, adds: Expr) -> None:
    """The instructions of products side by side in a stage."""
    gemm = wide[0]
    tile = gemm.tile
    narrow, whole = element_bytes(str(gemm.a.buffer.dtype)) == 1, str(sums[0].dtype) == "uint32"
    a = Operand(gemm.a, gemm.trans_a, ctx)
    b = Operand(gemm.b, not gemm.trans_b, ctx)
    first_a = let("a", a.descriptor(ctx.share * tile.rows))
    first_b = let("b", b.descriptor())
    depth = STEP_BYTES if narrow else STEP_BYTES // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{tile.columns * len(wide)}k{depth}.{tile.types}"
    signs = [] if whole else [1, 1]
    sides = [] if narrow else [int(gemm.trans_a), int(not gemm.trans_b)]
    for step in range(tile.steps):
        for row in range(tile.rows):
            held = range(row * tile.columns // 2, (row + 1) * tile.columns // 2)
            ptx(
                name,
                *[each[register] for each in sums for register in held],
                first_a + a.step(step, row),
                first_b + b.step(step),
                T.ptx.pred(adds if step == 0 else 1),
                *signs,
                *sides,
            )
