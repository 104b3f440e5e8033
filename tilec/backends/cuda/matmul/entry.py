"""The kernel of a specialised launch: parameters, barriers, roles, the walk over tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.early_start import WAIT, is_asked
from tilec.backends.cuda.matmul.context import MatmulContext
from tilec.backends.cuda.matmul.emit_early import EarlyLoads, loads_early
from tilec.backends.cuda.matmul.emit_head import emit_head
from tilec.backends.cuda.matmul.emit_parts import Exchange, emit_sum, open_exchange
from tilec.backends.cuda.matmul.emit_ring import emit_drain, emit_fill
from tilec.backends.cuda.matmul.heads import is_scalar
from tilec.backends.cuda.matmul.nodes import (
    GatherLoad,
    MatmulRoles,
    MatrixView,
    Proceed,
    RingDrain,
    RingFill,
    SumParts,
)
from tilec.backends.cuda.matmul.notes import notes
from tilec.backends.cuda.matmul.turns import Turns
from tilec.backends.cuda.matmul.walk_tiles import each_tile, tile_count
from tilec.backends.cuda.warp_roles.build import i32, let, ptx, registers, run, u32, when
from tilec.backends.cuda.warp_roles.context import SharedPlan
from tilec.backends.cuda.warp_roles.emit_residual import Residual, open_residuals, residual_bytes
from tilec.backends.cuda.warp_roles.emit_store import emit_store
from tilec.backends.cuda.warp_roles.load_ahead import Lane
from tilec.backends.cuda.warp_roles.nodes import Ring, TensorMap, TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.parameters import declare, grid_extent, map_code
from tilec.backends.cuda.warp_roles.position import Position
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.roads import roads_of
from tilec.backends.cuda.warp_roles.staging import finish_stores
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.ir.nodes import Alloc, Kernel, Launch, Stmt, walk
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.parameters import grid_texts, spelled
from tilec.lowering.exprs import int_value
from tilec.lowering.lowered import LoweredLaunch

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: The named barrier at which consumers learn that the ring is open; lower ones belong to warpgroups.
_OPEN = 6
#: Emits what happens for every tile of this block, or of the warpgroup whose turn it is.
EachTile: TypeAlias = "Callable[..., None]"
#: What TVM's instructions want sums of integers to be held in.
_HELD = {"int32": "uint32"}


def lower_matmul(kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
    """Device TIR of a product that has roles; ``marks`` as in `DeviceContext`."""
    roles = roles_of(launch, MatmulRoles)
    maps = _tensor_maps(roles)
    plan = _shared(launch, roles)
    func = _function(kernel, launch, roles, maps, plan, target, marks)
    texts = [f"({text})" for text in grid_texts(kernel, launch)]
    if roles.order.pair is not None:
        texts[roles.order.pair] = f"(({texts[roles.order.pair]} + 1) // 2 * 2)"
    if roles.order.split > 1:
        texts.append(str(roles.order.split))
    grid = " * ".join(texts)
    return LoweredLaunch(
        func,
        (grid,),
        launch.threads,
        notes=(*launch.notes, *notes(launch, roles)),
        roads=roads_of(launch, (roles,), _warps(roles)),
        shared_bytes=plan.total,
        cluster=(roles.order.cluster, 1, 1),
        blocks_per_sm=0 if launch.schedule.persistent is False else 1,
        entry_registers=roles.roles.entry_registers,
        programmatic=is_asked(launch),
        tensor_maps=tuple(map_code(found, kernel, _views(launch)) for found in maps),
    )


def _warps(roles: MatmulRoles) -> str:
    return f"warp roles: loading warps {roles.roles.loaders}, multiplying warpgroups {roles.roles.consumers}"


# ---- shared memory ----


def _shared(launch: Launch, roles: MatmulRoles) -> SharedPlan:
    """Tiles, staging, parts of sums, full and empty barriers of the ring, the two barriers of an exchange of
    parts, those of residuals."""
    consumers = roles.roles.consumers
    sums = [stmt for stmt in roles.consumer if isinstance(stmt, SumParts)]
    sizes = {
        "staging": _staging(roles) * consumers,
        "parts": sum(stmt.bytes for stmt in sums) * consumers,
        "barriers": 16 * _ring(roles).stages,
        "exchange": 16 * len(sums),
        "residual": residual_bytes(consumers) if _reads_residual(roles) else 0,
    }
    return SharedPlan.of((stmt.buffer for stmt in launch.body if isinstance(stmt, Alloc)), sizes)


def _stores(roles: MatmulRoles) -> list[TileStore]:
    return [stmt for stmt in roles.consumer if isinstance(stmt, TileStore)]


def _staging(roles: MatmulRoles) -> int:
    """Bytes of staging buffers for one warpgroup."""
    return max((stmt.staging_bytes for stmt in _stores(roles)), default=0)


def _reads_residual(roles: MatmulRoles) -> bool:
    return any(stmt.residual is not None for stmt in _stores(roles))


def _tensor_maps(roles: MatmulRoles) -> list[TensorMap]:
    """The maps of a launch in the order of its parameters."""
    loads = [stmt.map for stmt in walk(roles.producer) if isinstance(stmt, TmaLoad)]
    return loads + [each for stmt in _stores(roles) for each in (stmt.map, stmt.residual) if each is not None]


def _gathers(roles: MatmulRoles) -> bool:
    return any(isinstance(stmt, GatherLoad) for stmt in walk(roles.producer))


def _views(launch: Launch) -> dict[Var, Var]:
    return {stmt.view: stmt.root for stmt in launch.body if isinstance(stmt, MatrixView)}


def _ring(roles: MatmulRoles) -> Ring:
    return next(stmt.ring for stmt in walk(roles.producer) if isinstance(stmt, RingFill))


# ---- the function ----


def _function(
    kernel: Kernel,
    launch: Launch,
    roles: MatmulRoles,
    maps: list[TensorMap],
    plan: SharedPlan,
    target: Target,
    marks: bool,
) -> tirx.PrimFunc:
    facts = ScopedRewrite(kernel, launch).facts
    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        T.func_attr({"tirx.noalias": True, "tirx.launch_bounds_min_blocks_per_sm": 1})
        ctx = MatmulContext(
            target,
            facts,
            marks=marks,
            roles=roles.roles,
            plan=plan,
            ring=_ring(roles),
            staging_bytes=_staging(roles),
            order=roles.order,
        )
        declare(kernel, maps, ctx, _views(launch))
        extents = [let(f"tiles_{axis}", grid_extent(ctx, spelled(extent, kernel)))
                   for axis, extent in enumerate(launch.grid)]  # fmt: skip
        with (
            T.launch_thread("blockIdx.x", tile_count(extents) * roles.order.cluster) as block,
            T.launch_thread("threadIdx.x", roles.roles.threads) as thread,
        ):
            _kernel(launch, roles, ctx, extents, block, thread)
    return builder.get()


def _kernel(
    launch: Launch, roles: MatmulRoles, ctx: MatmulContext, extents: list[Var], block: Var, thread: Var
) -> None:
    consumers = roles.roles.consumers
    memory = T.alloc_buffer((ctx.plan.total,), "uint8", scope="shared.dyn", align=TILE_ALIGNMENT)
    ctx.base = let("shared", T.cuda.cvta_generic_to_shared(memory.ptr_to([0])))
    ctx.warpgroup = let("group", T.truncdiv(thread, i32(128)))
    ctx.own = let("thread", T.truncmod(thread, i32(128)))
    if ctx.order.cluster > 1:
        ctx.rank = let("rank", T.truncmod(block, i32(ctx.order.cluster)))
    leader = tirx.EQ(thread, i32(consumers * 128))
    starts_alone = not _gathers(roles) and roles.order.pair is None
    _open_ring(roles, ctx, leader, starts_alone)
    go_on, wait = WAIT if is_asked(launch) else ("", "")
    if go_on:
        ptx(go_on)
    if wait and not loads_early(roles):
        ptx(wait)

    def each(body: Callable[[], None], turn: Expr | None = None) -> None:
        each_tile(launch, roles.order, extents, block, ctx, body, turn)

    chosen = T.If(ctx.warpgroup >= consumers)
    with chosen:
        with T.Then():
            if starts_alone:
                ptx("bar.arrive", u32(_OPEN), roles.roles.threads)
            _registers(roles, "dec", 0)
            if _gathers(roles):
                ctx.loader = let("loader", thread - consumers * 128)
            with nullcontext() if _gathers(roles) else when(leader):
                _producer(roles, ctx, each)
            if ctx.order.split > 1:
                ptx("barrier.cluster.wait")
        with T.Else():
            if starts_alone:
                ptx("bar.sync", u32(_OPEN), roles.roles.threads)
            _registers(roles, "inc", 1)
            if ctx.order.split > 1:
                ptx("barrier.cluster.wait")
            if wait and loads_early(roles):
                ptx(wait)
            _consumer(launch, roles, ctx, extents, each)
    if ctx.order.cluster > 1:
        run(T.cuda.cluster_sync())  # a block may be written to until the others of its cluster are done


def _registers(roles: MatmulRoles, change: str, which: int) -> None:
    if roles.roles.registers is not None:
        ptx(f"setmaxnreg.{change}.sync.aligned.u32", roles.roles.registers[which])


def _open_ring(roles: MatmulRoles, ctx: MatmulContext, leader: Expr, starts_alone: bool) -> None:
    """Sets up all barriers. Where only the leader loads, and into its own block, it need not wait for anyone
    (``starts_alone``); consumers wait for it at the start of their role, and for other blocks."""
    arrivals = int(any(isinstance(stmt, TmaLoad) for stmt in walk(roles.producer)))
    arrivals += roles.roles.loaders if _gathers(roles) else 0
    with when(leader):
        for each in ctx.maps.values():
            ptx("prefetch.tensormap", T.address_of(each))
        readers = ctx.roles.sharers * ctx.order.listeners
        ctx.barriers("barriers", ctx.ring.stages).open(arrivals, readers)
        if ctx.order.split > 1:
            open_exchange(ctx)
        if _reads_residual(roles):
            open_residuals(ctx)
        ptx("fence.mbarrier_init.release.cluster")
        ptx("fence.proxy.async")
    if ctx.order.split > 1:
        ptx("barrier.cluster.arrive")
    if not starts_alone:
        run(T.cuda.cta_sync() if ctx.order.pair is None else T.cuda.cluster_sync())


# ---- roles ----


def _producer(roles: MatmulRoles, ctx: MatmulContext, each: EachTile) -> None:
    position = Position(_ring(roles).stages)
    early = EarlyLoads(_ring(roles).stages) if loads_early(roles) else None

    def rest(block: Sequence[Stmt]) -> None:
        for stmt in block:
            if isinstance(stmt, RingFill):
                emit_fill(stmt, ctx, position, early)

    def body() -> None:
        _guarded(roles.producer, ctx, rest)

    each(body)


def _consumer(
    launch: Launch,
    roles: MatmulRoles,
    ctx: MatmulContext,
    extents: list[Var],
    each: EachTile,
) -> None:
    position, lane = Position(_ring(roles).stages), Lane(ctx)
    exchange = Exchange() if roles.order.split > 1 else None
    turns = Turns(roles, ctx, position) if roles.roles.pingpong else None
    for stmt in roles.consumer:
        if isinstance(stmt, Alloc) and not is_scalar(stmt):
            rows, columns = (int_value(extent) or 1 for extent in stmt.buffer.shape)
            count = rows * columns // (128 * roles.roles.sharers)
            dtype = str(stmt.buffer.dtype)
            ctx.held[stmt.buffer] = registers(count, _HELD.get(dtype, dtype))

    for stmt in roles.consumer:
        if isinstance(stmt, TileStore) and stmt.residual is not None:
            ctx.residuals[stmt] = Residual(stmt, ctx)

    def rest(block: Sequence[Stmt]) -> None:
        for residual in ctx.residuals.values():
            with nullcontext() if ctx.present is None else when(ctx.present):
                residual.begin()
        for stmt in block:
            if isinstance(stmt, RingDrain):
                emit_drain(stmt, ctx, position, turns)
            elif isinstance(stmt, SumParts) and exchange is not None:
                emit_sum(stmt, ctx, exchange)
            elif isinstance(stmt, TileStore):
                with nullcontext() if ctx.present is None else when(ctx.present):
                    _tile_store(stmt, ctx, lane)

    def body() -> None:
        axis = roles.order.pair
        if axis is not None:
            other = 1 - axis if roles.order.crosses else axis
            ctx.present = ctx.env[launch.block_vars[other]] < extents[other]
        _guarded(roles.consumer, ctx, rest)

    each(body, None if turns is None else ctx.warpgroup)
    finish_stores(ctx)


def _guarded(block: Sequence[Stmt], ctx: MatmulContext, rest: Callable[[Sequence[Stmt]], None]) -> None:
    """The scalar code of a role, and the rest of it where that says to proceed."""
    for stmt in filter(is_scalar, block):
        emit_head(stmt, ctx)
    condition = next((ctx.expr(stmt.cond) for stmt in block if isinstance(stmt, Proceed)), None)
    with when(condition) if condition is not None else nullcontext():
        rest([stmt for stmt in block if not is_scalar(stmt)])


def _tile_store(stmt: TileStore, ctx: MatmulContext, lane: Lane) -> None:
    rows, columns = stmt.extents
    for var, extent in zip(stmt.vars, (rows, columns * stmt.parts), strict=True):
        ctx.facts.bind_range(var, 0, extent)
    emit_store(stmt, ctx, lane)
