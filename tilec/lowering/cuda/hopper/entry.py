"""The kernel of a specialised launch: parameters, barriers, roles, the walk over tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tilec.ir.nodes import Alloc, Bind, Kernel, Launch, ScalarParam, TensorParam, walk
from tilec.lowering.cpu.expand_copies import cast_to
from tilec.lowering.cpu.parameters import TRAVELS, names, spelled
from tilec.lowering.cpu.scopes import ScopedRewrite
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cuda.hopper.assign_warps import specialised
from tilec.lowering.cuda.hopper.build import cell, grid_blocks, i32, let, ptx, put, registers, run, when
from tilec.lowering.cuda.hopper.context import Context, SharedPlan
from tilec.lowering.cuda.hopper.emit_ring import Position, emit_drain, emit_fill
from tilec.lowering.cuda.hopper.emit_store import Lane, emit_store, finish_stores
from tilec.lowering.cuda.hopper.nodes import (
    Ring,
    RingDrain,
    RingFill,
    Specialised,
    TensorMap,
    TileOrder,
    TileStore,
    TmaLoad,
)
from tilec.lowering.cuda.hopper.ring import tile_bytes
from tilec.lowering.cuda.hopper.tma import element_strides
from tilec.lowering.exprs import dtype_of, int_value
from tilec.lowering.lowered import LoweredLaunch, TensorMapCode
from tilec.lowering.texts import int_text

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_ALIGNMENT = 1024
#: Extent of the flat buffers behind pointers.
_ENDLESS = 1 << 62


def lower_specialised(kernel: Kernel, launch: Launch) -> LoweredLaunch:
    """Device TIR of a launch that has roles."""
    roles = specialised(launch)
    assert roles is not None
    maps = _maps(roles)
    plan = _shared(launch, roles)
    func = _function(kernel, launch, roles, maps, plan)
    spellings = names(kernel)
    texts = [f"({int_text(spelled(extent, kernel), spellings)})" for extent in launch.grid]
    if roles.order.pair is not None:
        texts[roles.order.pair] = f"(({texts[roles.order.pair]} + 1) // 2 * 2)"
    grid = " * ".join(texts)
    return LoweredLaunch(
        func,
        (grid,),
        launch.threads,
        notes=_notes(roles),
        shared_bytes=plan.total,
        cluster=(roles.order.cluster, 1, 1),
        blocks_per_sm=1,
        tensor_maps=tuple(_map_code(found, kernel) for found in maps),
    )


def _notes(roles: Specialised) -> tuple[str, ...]:
    ring = next(stmt.ring for stmt in walk(roles.producer) if isinstance(stmt, RingFill))
    stores = [stmt for stmt in roles.consumer if isinstance(stmt, TileStore)]
    how = "TMA stores" if all(stmt.map is not None for stmt in stores[-1:]) else "stores from registers"
    pairs = "" if roles.order.pair is None else ", operands multicast to clusters of 2"
    return (
        f"one producer and {roles.roles.consumers} consumer warpgroups, wgmma, TMA ring of {ring.stages}"
        f" stages, {how}, persistent grid in bands of {roles.order.band}{pairs}",
    )


# ---- parameters ----


def _maps(roles: Specialised) -> list[TensorMap]:
    loads = [stmt.map for stmt in walk(roles.producer) if isinstance(stmt, TmaLoad)]
    stores = [stmt.map for stmt in roles.consumer if isinstance(stmt, TileStore) and stmt.map is not None]
    return loads + stores


def _map_code(found: TensorMap, kernel: Kernel) -> TensorMapCode:
    """A map as data, innermost axis first."""
    spellings = names(kernel)
    tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
    index = next(i for i, param in enumerate(tensors) if param.buffer.same_as(found.buffer))
    size = element_bytes(str(found.buffer.dtype))

    def text(value: Expr | int) -> str:
        return int_text(spelled(value, kernel), spellings)

    strides = [f"({text(stride)}) * {size}" for stride in element_strides(found.buffer)[:-1]]
    return TensorMapCode(
        tensor=index,
        dtype=str(found.buffer.dtype),
        extents=tuple(text(extent) for extent in reversed(found.buffer.shape)),
        strides=tuple(reversed(strides)),
        box=tuple(reversed(found.box)),
        swizzle=found.swizzle,
    )


def _shared(launch: Launch, roles: Specialised) -> SharedPlan:
    """Tiles, staging, barriers, one after the other."""
    at, tiles = 0, {}
    for stmt in launch.body:
        if isinstance(stmt, Alloc):
            tiles[stmt.buffer] = at
            at += -(-tile_bytes(stmt.buffer) // _ALIGNMENT) * _ALIGNMENT
    staging = max((stmt.staging_bytes for stmt in roles.consumer if isinstance(stmt, TileStore)), default=0)
    barriers = at + staging * roles.roles.consumers
    return SharedPlan(tiles, at, staging, barriers, barriers + 16 * _ring(roles).stages)


def _ring(roles: Specialised) -> Ring:
    return next(stmt.ring for stmt in walk(roles.producer) if isinstance(stmt, RingFill))


# ---- the function ----


def _function(
    kernel: Kernel, launch: Launch, roles: Specialised, maps: list[TensorMap], plan: SharedPlan
) -> tirx.PrimFunc:
    facts = ScopedRewrite(kernel, launch).facts
    with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
        T.func_name("kernel")
        T.func_attr({"tirx.noalias": True})
        zero = i32(0)
        ctx = Context(facts, roles.roles, _ring(roles), plan, zero, zero, zero, zero, roles.order.cluster)
        _parameters(kernel, maps, ctx)
        extents = [let(f"tiles_{axis}", _int32(ctx, spelled(extent, kernel)))
                   for axis, extent in enumerate(launch.grid)]  # fmt: skip
        with (
            T.launch_thread("blockIdx.x", _product(extents) * roles.order.cluster) as block,
            T.launch_thread("threadIdx.x", roles.roles.threads) as thread,
        ):
            _kernel(launch, roles, ctx, extents, block, thread)
    return builder.get()


def _parameters(kernel: Kernel, maps: list[TensorMap], ctx: Context) -> None:
    buffers = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
    buffers += [stmt.buffer for stmt in kernel.body if isinstance(stmt, Alloc)]
    pointers = [T.arg(f"{buffer.name}_ptr", T.handle(_element(buffer), "global")) for buffer in buffers]
    scalars = {param.var: _scalar(param) for param in kernel.params if isinstance(param, ScalarParam)}
    dims = [(dim.var, T.arg(f"{dim.name}_dim", T.int64())) for dim in kernel.dims]
    ctx.maps = {id(found): T.arg(f"map_{number}", T.TensorMap()) for number, found in enumerate(maps)}
    for buffer, pointer in zip(buffers, pointers, strict=True):
        ctx.tensors[buffer] = T.decl_buffer((tirx.const(_ENDLESS, "int64"),), _element(buffer), data=pointer)
    for var, argument in scalars.items():
        ctx.values[var] = cast_to(argument, dtype_of(var))
    for var, argument in dims:
        if var is not None:
            ctx.values[var] = let(str(var.name), tirx.Cast(dtype_of(var), argument))
    for stmt in kernel.body:
        if isinstance(stmt, Bind):
            ctx.values[stmt.var] = let(str(stmt.var.name), ctx.expr(stmt.value))


def _element(buffer: Var) -> str:
    """The type behind a pointer; 8-bit floats are moved by TMA alone."""
    dtype = str(buffer.dtype)
    return "uint8" if dtype.startswith("float8") else dtype


def _scalar(param: ScalarParam) -> Var:
    dtype = dtype_of(param.var)
    return T.arg(f"{param.name}_arg", getattr(T, TRAVELS.get(dtype, dtype))())


def _product(extents: list[Var]) -> Expr:
    total: Expr = extents[0]
    for extent in extents[1:]:
        total = total * extent
    return total


def _kernel(
    launch: Launch, roles: Specialised, ctx: Context, extents: list[Var], block: Var, thread: Var
) -> None:
    consumers = roles.roles.consumers
    memory = T.alloc_buffer((ctx.shared.total,), "uint8", scope="shared.dyn", align=_ALIGNMENT)
    ctx.base = let("shared", T.cuda.cvta_generic_to_shared(memory.ptr_to([0])))
    ctx.group = let("group", T.truncdiv(thread, i32(128)))
    ctx.thread = let("thread", T.truncmod(thread, i32(128)))
    if ctx.cluster > 1:
        ctx.rank = let("rank", T.truncmod(block, i32(ctx.cluster)))
    leader = tirx.EQ(thread, i32(consumers * 128))
    _open_ring(ctx, thread, leader)

    def each(body: Callable[[], None]) -> None:
        _each_tile(launch, roles.order, extents, block, ctx, body)

    chosen = T.If(tirx.EQ(ctx.group, i32(consumers)))
    with chosen:
        with T.Then():
            _registers(roles, "dec", 0)
            with when(leader):
                _producer(roles, ctx, each)
        with T.Else():
            _registers(roles, "inc", 1)
            _consumer(launch, roles, ctx, extents, each)
    if ctx.cluster > 1:
        run(T.cuda.cluster_sync())  # a block may be written to until its partner is done


def _int32(ctx: Context, extent: Expr | int) -> Expr:
    if isinstance(extent, int):
        return i32(extent)
    return cast_to(ctx.expr(extent), "int32")


def _registers(roles: Specialised, change: str, which: int) -> None:
    if roles.roles.registers is not None:
        ptx(f"setmaxnreg.{change}.sync.aligned.u32", roles.roles.registers[which])


def _open_ring(ctx: Context, thread: Var, leader: Expr) -> None:
    with when(tirx.EQ(thread, i32(0))):
        for stage in range(ctx.ring.stages):
            ptx("mbarrier.init.shared.b64", ctx.full(i32(stage)), tirx.const(1, "uint32"))
            ptx(
                "mbarrier.init.shared.b64",
                ctx.empty(i32(stage)),
                tirx.const(ctx.roles.consumers * ctx.cluster, "uint32"),
            )
        ptx("fence.mbarrier_init.release.cluster")
        ptx("fence.proxy.async")
    with when(leader):
        for each in ctx.maps.values():
            ptx("prefetch.tensormap", T.address_of(each))
    run(T.cuda.cluster_sync() if ctx.cluster > 1 else T.cuda.cta_sync())


def _each_tile(
    launch: Launch, order: TileOrder, extents: list[Var], block: Var, ctx: Context, body: Callable[[], None]
) -> None:
    """``body`` for every tile of this block, with the block variables of the launch set. Pairs of blocks walk
    pairs of tiles; the second tile of the last pair may lie outside of the grid. Coordinates are kept in
    registers, so that TVM's simplifier does not write their divisions into every address."""
    extents = list(extents)
    step, first = grid_blocks(), block
    if order.pair is not None:
        extents[order.pair] = let("pairs", T.truncdiv(extents[order.pair] + 1, i32(2)))
        step, first = T.truncdiv(step, i32(2)), let("first", T.truncdiv(block, i32(2)))
    total = let("total", _product(extents))
    step = let("blocks", step)
    tile = cell(first)
    with T.While(tile[0] < total):
        places = _places(tile[0], extents, order)
        if order.pair is not None:
            places[order.pair] = let("own", places[order.pair] * 2 + ctx.rank)
        held = [cell(place)[0] for place in places]
        with ctx.scope(dict(zip(launch.block_vars, held, strict=True))):
            body()
        put(tile, tile[0] + step)


def _places(tile: Expr, extents: list[Var], order: TileOrder) -> list[Expr]:
    """The grid coordinates of a tile number: bands along one axis, the third axis outermost."""
    if len(extents) == 1:
        return [let("tile", tile)]
    rest, places = let("tile", tile), []
    if len(extents) == 3:
        plane = let("plane", extents[0] * extents[1])
        places = [let("z", T.truncdiv(rest, plane))]
        rest = let("in_plane", rest - places[0] * plane)
    banded, other = (extents[1], extents[0]) if order.axis == 1 else (extents[0], extents[1])
    size = let("band_tiles", other * order.band)
    band = let("band", T.truncdiv(rest, size))
    inside = let("in_band", rest - band * size)
    width = let("band_width", T.min(i32(order.band), banded - band * order.band))
    across = let("across", T.truncdiv(inside, width))
    along = let("along", band * order.band + inside - across * width)
    return [*((across, along) if order.axis == 1 else (along, across)), *places]


# ---- roles ----


def _producer(roles: Specialised, ctx: Context, each: Callable[[Callable[[], None]], None]) -> None:
    position = Position()

    def body() -> None:
        for stmt in roles.producer:
            if isinstance(stmt, Bind):
                _bind(stmt, ctx)
            elif isinstance(stmt, RingFill):
                emit_fill(stmt, ctx, position)

    each(body)


def _consumer(
    launch: Launch,
    roles: Specialised,
    ctx: Context,
    extents: list[Var],
    each: Callable[[Callable[[], None]], None],
) -> None:
    position, lane = Position(), Lane(ctx)
    for stmt in roles.consumer:
        if isinstance(stmt, Alloc):
            rows, columns = (int_value(extent) or 1 for extent in stmt.buffer.shape)
            count = rows * columns // (128 * roles.roles.consumers)
            ctx.fragments[stmt.buffer] = registers(count, str(stmt.buffer.dtype))

    def body() -> None:
        for stmt in roles.consumer:
            if isinstance(stmt, Bind):
                _bind(stmt, ctx)
            elif isinstance(stmt, RingDrain):
                emit_drain(stmt, ctx, position)
            elif isinstance(stmt, TileStore) and roles.order.pair is None:
                _tile_store(stmt, ctx, lane)
            elif isinstance(stmt, TileStore):
                axis = roles.order.pair or 0
                with when(ctx.values[launch.block_vars[axis]] < extents[axis]):
                    _tile_store(stmt, ctx, lane)

    each(body)
    finish_stores(ctx)


def _tile_store(stmt: TileStore, ctx: Context, lane: Lane) -> None:
    for var, extent in zip(stmt.vars, stmt.extents, strict=True):
        ctx.facts.bind_range(var, 0, extent)
    emit_store(stmt, ctx, lane)


def _bind(stmt: Bind, ctx: Context) -> None:
    """A name, and what it says about bounds."""
    if dtype_of(stmt.var).startswith("int"):
        ctx.facts.bind_value(stmt.var, stmt.value)
    ctx.values[stmt.var] = let(str(stmt.var.name), ctx.expr(stmt.value))
