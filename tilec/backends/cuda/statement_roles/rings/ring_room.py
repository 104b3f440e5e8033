"""How many stages of rings there is room for, beside tiles and results that pass through shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.held_alike import held_alike
from tilec.backends.cuda.analysis.pipelines.behind_rings import used_behind
from tilec.backends.cuda.analysis.pipelines.ring_depth import COLD_LATENCY, LATENCY
from tilec.backends.cuda.analysis.products.fit_operands import Fitted, fit
from tilec.backends.cuda.analysis.products.mma import MMA, is_register_operand
from tilec.backends.cuda.analysis.products.tensor_memory import tensor_tile
from tilec.backends.cuda.analysis.products.units import ALIGNMENT
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.passes.waits.place_shared import SMALL
from tilec.backends.cuda.statement_roles.rings.deepen import deepened, shifted_bytes
from tilec.backends.cuda.statement_roles.rings.fills import fills
from tilec.backends.cuda.statement_roles.rings.later_tiles import laid_over
from tilec.backends.cuda.statement_roles.split.order import order_of
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import int_value, loads
from tilec.ir.nodes import PRODUCTS, Alloc, Copy, Gemm, Launch, Parallel, Reduce, Store, is_global, walk
from tilec.lowering.emission.memory import tile_bytes, whole_units
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tvm.ir import Var

    from tilec.backends.cuda.nodes import WarpTile
    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.loads import Load
    from tilec.backends.cuda.statement_roles.split.slices import Program
    from tilec.ir.nodes import Stmt
    from tilec.targets import Target

#: Bytes of shared memory that barriers take, and that one takes.
_RESERVED, _BARRIER = 1024, 8
#: Stages that keep tensor cores busy, and bytes of elements that registers hold in pieces too small to store.
_ENOUGH, _NARROW = 3, 2
#: Bytes of a sum.
_SUM = 4


def with_stages(
    rings: list[Ring],
    found: Mapping[Stmt, Load],
    launch: Launch,
    program: Program,
    target: Target,
    taken: int,
    made: int,
    turns: int,
) -> tuple[Ring, ...]:
    """The rings with the stages that there is room for. ``taken``: bytes that the producer needs beside them,
    ``made``: those of operands that threads make in each trip, which two versions of them take more;
    ``turns``: so many warpgroups have results of their own.
    Unfit where there is no room for one stage each."""
    tiles = {tile for ring in rings for tile in ring.tiles}
    stays = order_of(launch, program, list(found), thread_count(launch), turns > 1) is not None
    most = {
        ring.tiles: min(_most(len(rings)), math.inf if stays else fills(ring.tiles, found, program))
        for ring in rings
    }
    rings = [replace(ring, stages=int(min(ring.stages, most[ring.tiles]))) for ring in rings]
    rings = rings if stays else laid_over(rings, found, launch.body)
    behind = set() if stays else used_behind(launch.body, tiles)
    room = _room({*tiles, *behind}, launch, target, turns) - taken
    room -= turns * shifted_bytes(launch) if turns > 1 else 0
    room = room if launch.for_rings is None else min(room, launch.for_rings)
    results = [whole_units(tile_bytes(Alloc(tile)), TILE_ALIGNMENT) for tile in behind]
    staged = turns * _staged_bytes(launch)
    fitted = _fitted(rings, staged, room, results, stays, made)
    beside = staged + _beyond(fitted, results) if stays else _beyond(fitted, [*results, staged])
    left = room - made - beside
    latency = COLD_LATENCY if turns > 1 else LATENCY
    return deepened(fitted, found, launch, program, target, left, most, latency)


def _most(rings: int) -> int:
    """Stages of each ring whose two barriers a stage fit into what is kept for them; those of 16 stages take
    no more than those of one."""
    return max(ALIGNMENT, _RESERVED // (2 * rings) // ALIGNMENT * ALIGNMENT) // _BARRIER


def _room(tiles: Set[Var], launch: Launch, target: Target, turns: int = 1) -> int:
    """Bytes of shared memory beside barriers and all tiles but some, each as often as ``turns`` says."""
    assert target.gpu is not None
    allocs = (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.buffer not in tiles)
    others = sum(tile_bytes(stmt) for stmt in allocs if stmt.buffer.scope() == "shared.dyn")
    return target.gpu.shared_bytes - _RESERVED - turns * others


def _fitted(
    rings: list[Ring], staged: int, room: int, results: Sequence[int], stays: bool, made: int
) -> tuple[Ring, ...]:
    """The rings with as many stages as there is ``room`` for; the largest one loses them first. Where that
    keeps `_ENOUGH` stages, operands that threads make have room for the versions that are ``made``, and
    results of ``staged`` bytes that leave through shared memory: room of their own if loads of a block's next
    tile run ahead (``stays``), else that of the rings, as ``results`` of so many bytes."""
    whole = _cut(rings, room, results)
    if whole is None:
        raise Unfit("its tiles do not fit shared memory with one stage each", remedy="choose smaller tiles")
    for more in dict.fromkeys((made, 0)):
        left = room - more
        beside = _cut(rings, left - staged, results) if stays else _cut(rings, left, [*results, staged])
        pairs = zip(whole, beside or (), strict=False)
        if beside is not None and all(few.stages >= min(many.stages, _ENOUGH) for many, few in pairs):
            return beside
    return whole


def warps_bytes(launch: Launch, wide: Set[Stmt], target: Target) -> int:
    """Bytes of the shared tiles that come with products of warps, those that are not ``wide``: of operands
    that they do not take as they are, and of reductions over sums whose columns warps share."""
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm) and stmt not in wide]
    fitted, warps = [fit(product, target) for product in products], thread_count(launch) // WARP
    beside = _beside(MMA.tile(each.gemm, warps, target) for each in fitted)
    operands = sum(
        whole_units(size, TILE_ALIGNMENT) for each in fitted for size in _operand_tiles(each, beside > 1)
    )
    if has_tensor_memory(target):
        beside = max(beside, _beside(tensor_tile(product, warps, target) for product in products))
    return operands + (beside * _reduced_bytes(launch) if beside > 1 else 0)


def _beside(tiles: Iterable[WarpTile | str]) -> int:
    """Over how many warps, or warpgroups, the columns of products are spread at most."""
    return max((tile.warps[1] for tile in tiles if not isinstance(tile, str)), default=1)


def _reduced_bytes(launch: Launch) -> int:
    """Bytes of the results of all reductions."""
    found = (stmt.dst.buffer for stmt in walk(launch.body) if isinstance(stmt, Reduce))
    return sum(tile_bytes(Alloc(tile)) for tile in found)


def _operand_tiles(fitted: Fitted, is_shared: bool) -> Iterator[int]:
    """Bytes of each; ``is_shared``: what warps make of sums, others of them multiply, too."""
    allocs = (stmt for stmt in fitted.before if isinstance(stmt, Alloc))
    yield from (tile_bytes(alloc) for alloc in allocs if alloc.buffer.scope() == "shared.dyn")
    held = [fitted.gemm.a, fitted.gemm.b]
    own = is_register_operand(fitted.gemm, False)
    for region in held[own and not is_shared :]:
        if region.buffer.scope() == "local.fragment":
            elements = math.prod(int_value(extent) or 1 for extent in region.extent)
            yield elements * (_SUM if own else element_bytes(str(region.buffer.dtype)))


def free_bytes(launch: Launch, target: Target) -> int:
    """Bytes of shared memory that nothing takes, results that pass through it included."""
    return _room(set(), launch, target) - _staged_bytes(launch)


def _cut(rings: Sequence[Ring], room: int, results: Sequence[int]) -> tuple[Ring, ...] | None:
    """The rings with stages taken away until they fit, beside those of the ``results`` of so many bytes that
    their own bytes do not hold; None where they do not with one each."""
    made = list(rings)
    while sum(ring.taken for ring in made) + _beyond(made, results) > room:
        several = [ring for ring in made if ring.stages > 1]
        if not several:
            return None
        largest = max(several, key=lambda ring: ring.stages * ring.bytes)
        made = [replace(ring, stages=ring.stages - 1) if ring is largest else ring for ring in made]
    return tuple(made)


def _beyond(rings: Sequence[Ring], results: Sequence[int]) -> int:
    """Bytes of results that do not lie where rings were, one behind the other."""
    left = sum(ring.taken for ring in rings if ring.bytes > SMALL)
    total = 0
    for size in results:
        total += size if size > left else 0
        left -= size if size <= left else 0
    return total


def _staged_bytes(launch: Launch) -> int:
    """Bytes of the largest result of up to 16 bits that leaves registers for a tensor."""
    products = {stmt.c.buffer for stmt in walk(launch.body) if isinstance(stmt, PRODUCTS)}
    sums = held_alike(walk(launch.body), products)
    sizes: list[int] = [0]
    for stmt in walk(launch.body):
        loop = expand_copy(stmt) if isinstance(stmt, Copy) and stmt.src.buffer in sums else stmt
        if not isinstance(loop, Parallel):
            continue
        for store in walk(loop.body):
            if not isinstance(store, Store) or not is_global(store.buffer):
                continue
            size = element_bytes(str(store.buffer.dtype))
            if size <= _NARROW and sums & {load.source for load in loads(store.value)}:
                sizes.append(size * math.prod(int_value(extent) or 1 for extent in loop.extents))
    return max(sizes)
