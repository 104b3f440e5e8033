"""The kernel of a converted product: parameters, barriers, the loading warp and the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.early_start import is_asked, starts_early
from tilec.backends.cuda.emit.raster import asked_group, banded
from tilec.backends.cuda.packed_weights.assign import OTHER_REGISTERS
from tilec.backends.cuda.packed_weights.emit import emit_loads, emit_products
from tilec.backends.cuda.packed_weights.nodes import WARPGROUP, PackedProduct
from tilec.backends.cuda.packed_weights.warp_products import warp_registers
from tilec.backends.cuda.warp_roles.build import i32, let, ptx, registers, run, when
from tilec.backends.cuda.warp_roles.context import SharedPlan, TileContext
from tilec.backends.cuda.warp_roles.emit_store import emit_store
from tilec.backends.cuda.warp_roles.load_ahead import Lane
from tilec.backends.cuda.warp_roles.nodes import Ring, Roles, TensorMap
from tilec.backends.cuda.warp_roles.parameters import declare, grid_extent, map_code
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT, tile_bytes
from tilec.backends.cuda.warp_roles.roads import roads_of
from tilec.backends.cuda.warp_roles.staging import finish_stores
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.ir.nodes import Alloc, Kernel, Launch
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.parameters import grid_texts, spelled
from tilec.lowering.lowered import LoweredLaunch
from tilec.targets import REGISTER_FILE, SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_AXES = "xyz"


def lower_packed(kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
    """Device TIR of a product of packed weights; ``marks`` as in `DeviceContext`."""
    product = roles_of(launch, PackedProduct)
    starts = starts_early(launch, target)
    maps = [load.map for load in product.loads]
    maps += [store.map for store in product.store if store.map is not None]
    plan = _shared(product)
    func = _function(kernel, launch, product, maps, plan, target, marks)
    return LoweredLaunch(
        func,
        _grid(list(grid_texts(kernel, launch)), product.cluster),
        launch.threads,
        notes=(
            *launch.notes,
            _note(product, asked_group(launch)),
            *launch.schedule.without_effect("packed_weights"),
        ),
        roads=roads_of(
            launch,
            (product,),
            f"warp roles: a loading warp, {product.teams.consumers} warpgroups",
        ),
        shared_bytes=plan.total,
        tensor_maps=tuple(map_code(found, kernel) for found in maps),
        programmatic=starts,
        cluster=(product.cluster, 1, 1),
    )


def _grid(texts: list[str], cluster: int) -> tuple[str, ...]:
    """The extents of a grid of whole clusters."""
    if cluster > 1:
        texts[0] = f"(({texts[0]}) + {cluster - 1}) // {cluster} * {cluster}"
    return tuple(texts)


def _note(product: PackedProduct, group: tuple[int, str] | None) -> str:
    teams, packing = product.teams, product.packing
    shared = "" if teams.depth == 1 else f", {teams.depth} of them along K"
    pairs = "" if product.cluster == 1 else ", activations multicast to pairs of blocks"
    bands = "" if group is None else f", bands of {group[0]}"
    how = "wgmma's" if product.slices == 0 else f"mma.sync's ({product.slices} warps to a stage's columns)"
    return (
        f"{teams.consumers} consumer warpgroups{shared}, weights of {packing.width} bits converted in"
        f" registers as {how} first operand, TMA ring of {product.stages} stages{pairs}{bands}"
    )


def _shared(product: PackedProduct) -> SharedPlan:
    """Tiles one after the other, staging, then the barriers."""
    sizes = {"staging": _staging(product) * product.teams.rows, "barriers": 16 * product.stages}
    return SharedPlan.of((load.dst.buffer for load in product.loads), sizes)


def _staging(product: PackedProduct) -> int:
    """Bytes of staging buffers for one warpgroup."""
    return max((store.staging_bytes for store in product.store), default=0)


def _blocks_per_sm(product: PackedProduct, plan: SharedPlan, target: Target) -> int:
    """Blocks that share a multiprocessor: as many as its memory and registers hold."""
    assert target.gpu is not None
    by_memory = (target.gpu.shared_bytes + SYSTEM_SHARED_BYTES) // (plan.total + SYSTEM_SHARED_BYTES)
    wide = product.tile.rows * product.tile.columns // 2 + OTHER_REGISTERS
    held = warp_registers(product) if product.slices else wide
    by_registers = REGISTER_FILE // (held * product.teams.threads)
    return max(1, min(by_memory, by_registers))


def _function(
    kernel: Kernel,
    launch: Launch,
    product: PackedProduct,
    maps: list[TensorMap],
    plan: SharedPlan,
    target: Target,
    marks: bool,
) -> tirx.PrimFunc:
    facts = ScopedRewrite(kernel, launch).facts
    stage_bytes = sum(tile_bytes(tile) for tile in plan.tiles) // product.stages
    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        blocks = launch.schedule.min_blocks_per_sm or _blocks_per_sm(product, plan, target)
        T.func_attr({"tirx.noalias": True, "tirx.launch_bounds_min_blocks_per_sm": blocks})
        ctx = TileContext(
            target,
            facts,
            marks=marks,
            roles=Roles(product.teams.consumers, None),
            plan=plan,
            ring=Ring(product.stages, stage_bytes),
            staging_bytes=_staging(product),
        )
        declare(kernel, maps, ctx)
        extents = [grid_extent(ctx, spelled(extent, kernel)) for extent in launch.grid]
        _threads(launch, product, ctx, extents, [])
    return builder.get()


def _threads(
    launch: Launch, product: PackedProduct, ctx: TileContext, extents: list[Expr], blocks: list[Var]
) -> None:
    """Opens one axis of the grid after the other, then the block."""
    axis = len(blocks)
    if axis < len(extents):
        whole = product.cluster if axis == 0 else 1
        size = let(f"blocks_{axis}", T.truncdiv(extents[axis] + (whole - 1), i32(whole)) * whole)
        with T.launch_thread(f"blockIdx.{_AXES[axis]}", size) as block:
            _threads(launch, product, ctx, extents, [*blocks, block])
        return
    with T.launch_thread("threadIdx.x", product.teams.threads) as thread:
        order, places = banded(launch, blocks)
        for part in order:
            T.add_to_parent(part)
        ctx.env.update(zip(launch.block_vars, places, strict=True))
        _kernel(launch, product, ctx, thread, extents[0])


def _kernel(launch: Launch, product: PackedProduct, ctx: TileContext, thread: Var, columns: Expr) -> None:
    consumers = product.teams.consumers
    memory = T.alloc_buffer((ctx.plan.total,), "uint8", scope="shared.dyn", align=TILE_ALIGNMENT)
    ctx.base = let("shared", T.cuda.cvta_generic_to_shared(memory.ptr_to([0])))
    leader = tirx.EQ(thread, i32(consumers * WARPGROUP))
    with when(leader):
        ctx.barriers("barriers", product.stages).open(1, 4 * product.teams.rows * product.cluster)
        for each in ctx.maps.values():
            ptx("prefetch.tensormap", T.address_of(each))
        ptx("fence.mbarrier_init.release.cluster")
        ptx("fence.proxy.async")
    if product.cluster > 1:
        ctx.rank = let("rank", T.truncmod(ctx.env[launch.block_vars[0]], i32(product.cluster)))
    run(T.cuda.cluster_sync() if product.cluster > 1 else T.cuda.cta_sync())
    if is_asked(launch):
        ptx("griddepcontrol.launch_dependents")
    trips = let("trips", _trips(product, ctx))
    chosen = T.If(thread >= i32(consumers * WARPGROUP))
    with chosen:
        with T.Then(), when(leader):
            emit_loads(product, trips, is_asked(launch), ctx)
        with T.Else():
            _consumer(launch, product, ctx, thread, trips, columns)
    if product.cluster > 1:
        run(T.cuda.cluster_sync())  # a block may be written to until its partner is done


def _trips(product: PackedProduct, ctx: TileContext) -> Expr:
    return T.max(ctx.expr(product.stop) - ctx.expr(product.start), i32(0))


def _consumer(
    launch: Launch, product: PackedProduct, ctx: TileContext, thread: Var, trips: Expr, columns: Expr
) -> None:
    """The work of all consumers; ``columns`` blocks along the first axis have a tile."""
    warpgroup = let("warpgroup", T.truncdiv(thread, i32(WARPGROUP)))
    ctx.own = let("thread", T.truncmod(thread, i32(WARPGROUP)))
    ctx.warpgroup = let("group", T.truncmod(warpgroup, i32(product.teams.rows)))
    team = let("team", T.truncdiv(warpgroup, i32(product.teams.rows)))
    lane = Lane(ctx)
    for stmt in launch.body:
        if isinstance(stmt, Alloc) and stmt.buffer.same_as(product.c.buffer):
            count = product.tile.rows * product.tile.columns // 2
            ctx.held[stmt.buffer] = registers(count, "float32")
    emit_products(product, trips, team, ctx, lane)
    stores = tirx.EQ(team, i32(0))
    if product.cluster > 1:
        stores = tirx.And(stores, ctx.env[launch.block_vars[0]] < columns)
    with when(stores):
        for stmt in product.store:
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                ctx.facts.bind_range(var, 0, extent)
            emit_store(stmt, ctx, lane)
        finish_stores(ctx)
