"""BoxLoad and TensorStore as TMA, and what producers and consumers of rings say to each other."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.tiles import layouts_in, static_extents
from tilec.backends.cuda.analysis.pipelines.parts import Parts, parts_of
from tilec.backends.cuda.analysis.products.wgmma import slab_bytes
from tilec.backends.cuda.device import barriers
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.threads.groups import barrier_at
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import (
    ArriveLanded,
    BoxLoad,
    DrainStores,
    GiveBack,
    PartStore,
    TensorAdd,
    TensorStore,
    ThreadLoop,
    WaitLanded,
)
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import Boxes, boxes_of, part_map
from tilec.backends.cuda.warp_roles.emit.barriers import in_block, meet_warp
from tilec.backends.cuda.warp_roles.emit.build import cached, coordinate, emits, i32, ptx, run, u32, when
from tilec.backends.cuda.warp_roles.emit.load import LOAD, OF_BLOCK, OF_CLUSTER
from tilec.backends.cuda.warp_roles.emit.staging import STORE, drain_stores
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP, TensorMap, same_map
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Launch, walk
from tilec.ir.nodes.barriers import SetRegisters
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.ir.layout import Layout

#: Bytes count at a barrier of either block of a pair (PTX ISA, "cp.async.bulk.tensor", .cta_group::2).
_OF_PAIR = ".cta_group::2"
#: Waits for the writes of a thread's stores.
_WRITTEN = "cp.async.bulk.wait_group"
_ADD = "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group"


def maps_of(launch: Launch) -> list[TensorMap]:
    """The tensor maps of a launch, each once, in the order of their use."""
    layouts = layouts_in(launch.body)
    found: list[TensorMap] = []
    for stmt in walk(launch.body):
        if isinstance(stmt, (BoxLoad, TensorStore)):
            made = _map_of(stmt, layouts)
            if not any(same_map(made, known) for known in found):
                found.append(made)
    return found


def _map_of(stmt: BoxLoad | TensorStore, layouts: Mapping[Var, Layout]) -> TensorMap:
    if isinstance(stmt, PartStore):
        return part_map(stmt.dst, stmt.src.buffer, part_of(stmt).box)
    tile, box = (stmt.dst, stmt.src) if isinstance(stmt, BoxLoad) else (stmt.src, stmt.dst)
    return boxes_of(box, tile.buffer, layouts.get(tile.buffer)).map


def part_of(stmt: PartStore) -> Parts:
    """What each warpgroup stores."""
    loop = stmt.body[0]
    assert isinstance(loop, ThreadLoop)
    tile = stmt.src.buffer
    parts = parts_of(loop.layout, slab_bytes(tile) // element_bytes(str(tile.dtype)))
    assert parts is not None
    return parts


def argument(found: TensorMap, ctx: DeviceContext) -> Expr:
    """The parameter of the launch that is a tensor map."""
    return next(argument for known, argument in ctx.maps.items() if same_map(known, found))


@emits(BoxLoad)
def _load(stmt: BoxLoad, ctx: DeviceContext) -> None:
    tile = stmt.dst.buffer
    storage = ctx.storage(tile)
    made = boxes_of(stmt.src, tile, storage.layout)
    place = ctx.shared_place(tile) + _place(stmt, made, ctx)
    at = [coordinate(ctx.value(start)) for start in stmt.src.start]
    phase = barrier_at(stmt.barrier, stmt.index, ctx)
    barrier = T.cuda.cvta_generic_to_shared(phase)
    scope = OF_CLUSTER if has_wgmma(ctx.target) or stmt.pair else OF_BLOCK
    form = LOAD.format(rank=len(at), scope=scope, mode="tile") + (_OF_PAIR if stmt.pair else "")
    name, policy = cached(form, stmt.evict)
    address = T.address_of(argument(made.map, ctx))
    with nullcontext() if stmt.alone else when(first_of_group(ctx)):
        barrier = in_block(barrier, 0) if stmt.pair else barrier
        if stmt.announces:
            run(barriers.EXPECT.call(phase, i32(made.bytes)))
        for number in range(made.count):
            start = [*at[:-1], at[-1] + i32(number * made.map.box[-1])]
            ptx(name, place + u32(number * made.step), address, *reversed(start), barrier, *policy)


@emits(TensorStore)
def _store(stmt: TensorStore, ctx: DeviceContext) -> None:
    with when(first_of_group(ctx)):
        if stmt.again:
            ptx(_WRITTEN, 0)
        _boxes_out(STORE, stmt, ctx)
        if stmt.complete:
            ptx(_WRITTEN, 0)


@emits(TensorAdd)
def _add(stmt: TensorAdd, ctx: DeviceContext) -> None:
    with when(first_of_group(ctx)):
        _boxes_out(_ADD, stmt, ctx)


def _boxes_out(form: str, stmt: TensorStore, ctx: DeviceContext) -> None:
    """The boxes of a tile by an instruction, as a group of their own."""
    tile = stmt.src.buffer
    made = boxes_of(stmt.dst, tile, ctx.storage(tile).layout)
    at = [coordinate(ctx.value(start)) for start in stmt.dst.start]
    name, policy = cached(form.format(rank=len(at)), stmt.evict)
    address = T.address_of(argument(made.map, ctx))
    for number in range(made.count):
        start = [*at[:-1], at[-1] + i32(number * made.map.box[-1])]
        place = ctx.shared_place(tile) + u32(number * made.step)
        ptx(name, address, *reversed(start), place, *policy)
    ptx("cp.async.bulk.commit_group")


@emits(DrainStores)
def _drain(_: DrainStores, ctx: DeviceContext) -> None:
    with when(first_of_groups(ctx)):
        drain_stores()


def first_of_groups(ctx: DeviceContext) -> Expr:
    """Whether this is the first thread of a warpgroup of those that share the work."""
    assert ctx.thread is not None
    return tirx.EQ(tirx.truncmod(ctx.thread, i32(WARPGROUP)), i32(0))


def first_of_group(ctx: DeviceContext) -> Expr:
    """Whether this is the first of the threads that share the work."""
    return tirx.EQ(ctx.thread, i32(0))


def _place(stmt: BoxLoad, made: Boxes, ctx: DeviceContext) -> Expr:
    """Bytes from the beginning of a tile to the rows of the version that are filled."""
    shape, starts = stmt.dst.buffer.shape, stmt.dst.start
    lead = len(starts) - sum(int_value(extent) != 1 for extent in stmt.dst.extent)
    total: Expr = u32(0)
    for start, extent in zip(starts[:lead], shape[:lead], strict=True):
        total = total * u32(int_value(extent) or 1) + u32(ctx.value(start))
    version = prod(static_extents(stmt.dst.buffer)[lead:]) * element_bytes(str(stmt.dst.buffer.dtype))
    row = u32(ctx.value(starts[lead])) * u32(made.pitch) if len(starts) - lead == 2 else u32(0)
    return ctx.facts.analyzer.simplify(total * u32(version) + row)


@emits(WaitLanded)
def _wait_landed(stmt: WaitLanded, ctx: DeviceContext) -> None:
    """Waits, and makes what threads have copied visible to the asynchronous proxy."""
    place = barrier_at(stmt.barrier, stmt.index, ctx)
    run(barriers.wait("try_wait.parity.shared", False).call(place, ctx.value(stmt.parity)))
    ptx("fence.proxy.async.shared::cta")


@emits(GiveBack)
def _give_back(stmt: GiveBack, ctx: DeviceContext) -> None:
    assert ctx.thread is not None
    place = barrier_at(stmt.barrier, stmt.index, ctx)
    if not stmt.once:
        meet_warp()
    team = WARPGROUP if stmt.once else WARP
    with when(tirx.EQ(tirx.truncmod(ctx.thread, i32(team)), i32(0))):
        run(barriers.ARRIVE.call(place))


@emits(ArriveLanded)
def _arrive_landed(stmt: ArriveLanded, ctx: DeviceContext) -> None:
    run(barriers.ARRIVE_LANDED.call(barrier_at(stmt.barrier, stmt.index, ctx)))


@emits(SetRegisters)
def _set_registers(stmt: SetRegisters, ctx: DeviceContext) -> None:
    ptx(f"setmaxnreg.{'inc' if stmt.more else 'dec'}.sync.aligned.u32", stmt.count)
