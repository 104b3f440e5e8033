"""A product of converted weights gets its warps, its ring and its tensor copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.analysis.products.mma import dtypes, extents
from tilec.backends.cuda.analysis.products.wgmma import ROWS, WIDEST
from tilec.backends.cuda.emit.grid.raster import asked_group
from tilec.backends.cuda.packed_weights.match import Match, match
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.packed_weights.packing import CHUNK, STEP
from tilec.backends.cuda.packed_weights.parts import check_parts
from tilec.backends.cuda.packed_weights.warp_products import VECTOR_BYTES
from tilec.backends.cuda.warp_roles.nodes import TensorMap, TmaLoad, WarpgroupTile
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.backends.cuda.warp_roles.stores import plan_store
from tilec.backends.cuda.warp_roles.strategy import Plan
from tilec.backends.cuda.warp_roles.tails import with_tail
from tilec.backends.cuda.warp_roles.tma import tensor_map
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value, uses
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.ir.nodes import Alloc, Copy, Kernel, Launch, Region, Stmt
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import registers_of_a_thread

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

_TYPES = {"float16": "f32.f16.f16", "bfloat16": "f32.bf16.bf16"}
#: Bytes of a row of packed weights where a stage has no more.
_NARROW = 64
#: Up to so many columns warps multiply for themselves: wgmma would wait for its operands' registers.
MOST_COLUMNS = 16
#: Blocks of a cluster, wherever it runs.
MOST_PARTS = 8
#: Shared memory for barriers, and registers beside the accumulator: two batches of operands, packed words.
_BARRIER_BYTES, OTHER_REGISTERS = 1024, 76


def plan(kernel: Kernel, launch: Launch, target: Target) -> Plan:
    """A launch that converts packed weights into the first operand of its one product. Unfit where it is
    something else."""
    try:
        found = match(launch)
        tile = _tile(found)
        facts = ScopedRewrite(kernel, launch).facts
        product, tiles = _product(found, tile, launch.schedule, facts, target)
        product = _shared_out(_paired(product, launch, facts), launch.schedule.split_k or 1)
    except Unfit as unfit:
        why = f"its weights are converted through shared memory or element by element: {unfit}"
        raise Unfit(why, unfit.stmt, unfit.remedy) from unfit
    allocs = tuple(Alloc(tile, layout=layout) for tile, layout in tiles)
    body: tuple[Stmt, ...] = (*allocs, found.accumulator, product)
    return Plan(replace(launch, threads=(product.teams.threads, 1, 1), body=body))


def _tile(found: Match) -> WarpgroupTile:
    types, sizes = dtypes(found.gemm), extents(found.gemm)
    assert sizes is not None
    rows, columns, depth = sizes
    if types[0] not in _TYPES or types[1] != types[0]:
        raise Unfit(f"wgmma has no product of {types[0]} and {types[1]} here")
    if columns % 8 or columns > WIDEST:
        raise Unfit(f"{columns} columns are no multiple of 8 up to {WIDEST}")
    if depth % 128 or found.group % 16:
        raise Unfit(f"{depth} columns in groups of {found.group} are no whole steps")
    tile = WarpgroupTile(rows // ROWS // found.teams.rows, columns, depth // 16, _TYPES[types[0]])
    most = registers_of_a_thread(found.teams.threads)
    if tile.rows * columns // 2 + OTHER_REGISTERS > most:
        raise Unfit(f"{tile.rows * columns // 2} accumulator registers leave too few of {most}")
    return tile


def _product(
    found: Match, tile: WarpgroupTile, schedule: Schedule, facts: Facts, target: Target
) -> tuple[PackedProduct, list[tuple[Var, Layout]]]:
    stages = max(found.loop.num_stages // found.teams.depth, 2) * found.teams.depth
    tiles: list[tuple[Var, Layout]] = []
    packed = _load(found.packed, _packed_width(found), stages, schedule, facts, tiles)
    b = _load(found.b, ROW_BYTES, stages, schedule, facts, tiles)
    loads = [
        with_tail(load, axis, found.tail, (found.loop.var,), facts) for axis, load in enumerate((packed, b))
    ]
    if found.scale is not None:
        loads.append(_load(found.scale, None, stages, schedule, facts, tiles))
    room = _bytes_left(loads, stages, target) // found.teams.rows
    product = PackedProduct(
        found.teams,
        stages,
        found.loop.var,
        found.loop.start,
        found.loop.stop,
        tuple(loads),
        whole_tile(packed.dst.buffer),
        whole_tile(b.dst.buffer),
        found.gemm.c,
        whole_tile(loads[2].dst.buffer) if found.scale is not None else None,
        found.group,
        _scales_sums(found, schedule),
        found.packing,
        tile,
        tuple(plan_store(loop, tile, room, facts, 1, schedule.evict) for loop in found.tail),
        _slices(found, tile, packed),
        loc=found.loop.loc,
    )
    return product, tiles


def _bytes_left(loads: Sequence[TmaLoad], stages: int, target: Target) -> int:
    """Shared memory of a block beside the stages of its loads. Unfit where there is none."""
    assert target.gpu is not None
    total = sum(tile_bytes(load.dst.buffer) for load in loads)
    left = target.gpu.shared_bytes - _BARRIER_BYTES - total
    if left < 0:
        raise Unfit(f"{stages} stages of {total // stages} bytes do not fit the shared memory of a block")
    return left


def _slices(found: Match, tile: WarpgroupTile, packed: TmaLoad) -> int:
    """How many warps of a warpgroup share the columns of a stage and multiply for themselves; 0 where
    warpgroups multiply by wgmma: for many columns, or where chunks of K are not alike."""
    stride = found.packing.chunk_stride
    chunks, rest = divmod(tile.steps * STEP, CHUNK)
    if tile.columns > MOST_COLUMNS or tile.rows > 1 or stride is None or rest:
        return 0
    if packed.map.box[-1] % (stride * VECTOR_BYTES) or (found.group % CHUNK and CHUNK % found.group):
        return 0
    return next(count for count in (4, 2, 1) if chunks % count == 0)


def _scales_sums(found: Match, schedule: Schedule) -> bool:
    """Whether scales multiply sums, as the config may ask. Unfit where a group is less than two batches."""
    if not schedule.scale_sums or found.scale is None:
        return False
    if found.group % 128:
        raise Unfit(f"scale_sums wants groups of a multiple of 128, not {found.group}")
    return True


def _paired(product: PackedProduct, launch: Launch, facts: Facts) -> PackedProduct:
    """Neighbours along the first grid axis bring what both read once, where the config asks for it."""
    asked = launch.schedule.clusters
    if asked is None or set(asked) == {1}:
        return product
    if asked[0] != 2 or any(size != 1 for size in asked[1:]):
        raise Unfit(f"blocks form pairs along the first axis of the grid, not clusters of {asked}")
    if asked_group(launch) is not None:
        raise Unfit("pairs of blocks go in no bands")
    var = launch.block_vars[0]
    if any(uses(facts.inline(end), (var,)) for end in (product.start, product.stop)):
        raise Unfit("neighbours along the first axis of the grid have trips of their own")
    loads = tuple(replace(load, shared=_is_shared(load, var, facts)) for load in product.loads)
    if not any(load.shared for load in loads):
        raise Unfit("neighbours along the first axis of the grid load nothing in common")
    halves = tuple(replace(load, map=_halved(load.map), tail=None) if load.shared else load for load in loads)
    return replace(product, loads=halves)


def _shared_out(product: PackedProduct, split: int) -> PackedProduct:
    """``split`` blocks share the trips of a tile, as the config asks for."""
    if split == 1:
        return product
    if product.pairs > 1:
        raise Unfit("pairs of blocks do not split K", remedy="leave split_k or cluster out")
    if split > MOST_PARTS:
        raise Unfit(f"a cluster has up to {MOST_PARTS} blocks, not {split}")
    product = replace(product, split=split)
    check_parts(product)
    return product


def _is_shared(load: TmaLoad, var: Var, facts: Facts) -> bool:
    """Whether neighbours load the same, in halves of whole groups of eight rows, as swizzles have them."""
    return load.map.box[-2] % 16 == 0 and not any(uses(facts.inline(start), (var,)) for start in load.start)


def _halved(found: TensorMap) -> TensorMap:
    """A map of half of the rows, those outside of the tensor too."""
    *lead, rows, columns = found.box
    return replace(found, box=(*lead, rows // 2, columns), rest=0)


def _packed_width(found: Match) -> int:
    """Bytes of a slab of packed weights. TMA brings a row of 64 bytes no sooner than one of 128."""
    row = int_value(found.packed.dst.buffer.shape[-1]) or 1
    return _NARROW if row % ROW_BYTES else ROW_BYTES


def _load(
    copy: Copy,
    width: int | None,
    stages: int,
    schedule: Schedule,
    facts: Facts,
    tiles: list[tuple[Var, Layout]],
) -> TmaLoad:
    """A tensor copy into slabs of ``width`` bytes, 128 of them swizzled; whole rows for None."""
    tile = copy.dst.buffer
    size = element_bytes(str(tile.dtype))
    rows, columns = (int_value(extent) or 1 for extent in tile.shape)
    slab = columns if width is None else width // size
    if columns % slab or (size * slab) % 16:
        raise Unfit(f"rows of {columns} {tile.dtype} in {tile.name} are no multiple of {slab * size} bytes")
    swizzle = ROW_BYTES if width == ROW_BYTES else 0
    found = tensor_map(copy.src.buffer, rows, slab, swizzle, facts)
    versions = tirx.decl_buffer(
        (stages, rows, columns), str(tile.dtype), name=str(tile.name), scope="shared.dyn"
    )
    tiles.append((versions, _layout(stages, rows, columns, slab, swizzle)))
    zero = tirx.const(0, "int32")
    dst = Region(versions, (zero,) * 3, (1, rows, columns))
    name = str(copy.src.buffer.name)
    early = name in (schedule.constant or ())
    evict = copy.hints.eviction or schedule.evict.get(name)
    return TmaLoad(found, copy.src.start, dst, evict=evict, early=early, loc=copy.loc)


def _layout(stages: int, rows: int, columns: int, slab: int, swizzle: int) -> Layout:
    digits = (
        (Digit(stages, rows * columns),),
        (Digit(rows, slab),),
        (Digit(slab, 1), Digit(columns // slab, rows * slab)),
    )
    return Layout(digits, Swizzle(width=8, unit=slab // 8, row=slab) if swizzle else None)
