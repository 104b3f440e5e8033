"""Shared tiles that would be whole operands of tensor cores if zeros stood behind their ends, and that what
fills them can end so: a box of all that a tensor has along an axis has zeros behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.blocks.long_tiles import on_chip, sides
from tilec.backends.cuda.analysis.layouts.tiles import clears, is_whole, static_extents
from tilec.backends.cuda.analysis.products.fit_operands import multiplied_as
from tilec.backends.cuda.analysis.products.mma import STEP_BYTES, dtypes, extents
from tilec.backends.cuda.limits import has_wgmma
from tilec.ir.exprs import int_value, reads
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Gemm, Launch, Parallel, Region, Stmt, Store, walk
from tilec.ir.traits import buffers, expressions, loads_of, written
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.analysis.whole_stores import stores_each_in_order
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Bytes of the elements that wgmma reads across rows.
_ACROSS = 2
#: Scopes of tiles that may grow.
_SCOPES = ("shared.dyn", "local.fragment")
#: Of each tile the axis that gets longer, and how long it is then.
Longer: TypeAlias = dict["Var", tuple[int, int]]


def longer_axes(launch: Launch, target: Target) -> Longer:
    """What tiles of a launch are to be longer, and may be."""
    named, found = addressed_in(launch.body), Longer()
    for gemm in (stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)):
        for wanted in _wanted(gemm, launch, target):
            agree = all(found.get(tile, longer) == longer for tile, longer in wanted.items())
            grow = (tile not in named and _may_grow(tile, axis, launch) for tile, (axis, _) in wanted.items())
            if agree and all(grow):
                found |= wanted
    return found


def depth_axes(gemm: Gemm) -> tuple[tuple[Region, int], tuple[Region, int]]:
    """The operands of a product and the axis of each along K."""
    first, second = len(gemm.a.extent), len(gemm.b.extent)
    return (
        (gemm.a, first - (2 if gemm.trans_a else 1)),
        (gemm.b, second - (1 if gemm.trans_b else 2)),
    )


def covers(region: Region, axis: int) -> bool:
    """Whether a region has all that its buffer has along an axis."""
    size = int_value(region.buffer.shape[axis])
    return int_value(region.start[axis]) == 0 and size is not None and int_value(region.extent[axis]) == size


def _wanted(gemm: Gemm, launch: Launch, target: Target) -> Iterator[Longer]:
    """Tiles that have to be longer together: both along K, or one that wgmma reads across its rows."""
    sizes, operands = extents(gemm), depth_axes(gemm)
    if sizes is None or multiplied_as(dtypes(gemm), target) is None:
        return
    if not all(covers(region, axis) for region, axis in operands):
        return
    yield from _together((*operands, *_passed(operands, launch)))
    yield from _together(operands)
    if not has_wgmma(target):
        return
    for region, axis in operands:
        last, size = len(region.extent) - 1, element_bytes(str(region.buffer.dtype))
        if axis != last and size == _ACROSS and covers(region, last):
            yield from _together(((region, last),))


def _passed(operands: Sequence[tuple[Region, int]], launch: Launch) -> Iterator[tuple[Region, int]]:
    """The shared tiles that copies bring to operands in fragments, and the axis of each."""
    passages = [stmt for stmt in walk(launch.body) if isinstance(stmt, Copy) and passes(stmt)]
    for region, axis in operands:
        yield from ((stmt.src, axis) for stmt in passages if stmt.dst.buffer.same_as(region.buffer))


def passes(copy: Copy) -> bool:
    """Whether a copy brings all of a shared tile to a fragment of its shape."""
    scopes = (copy.src.buffer.scope(), copy.dst.buffer.scope())
    if scopes != ("shared.dyn", "local.fragment") or not (is_whole(copy.src) and is_whole(copy.dst)):
        return False
    return static_extents(copy.src.buffer) == static_extents(copy.dst.buffer)


def _together(places: Sequence[tuple[Region, int]]) -> Iterator[Longer]:
    """The axes of regions in whole steps of an instruction, where they are none."""
    found = Longer()
    for region, axis in places:
        step = STEP_BYTES // element_bytes(str(region.buffer.dtype))
        size = static_extents(region.buffer)[axis]
        if size % step == 0 or found.setdefault(region.buffer, (axis, -(-size // step) * step))[0] != axis:
            return
    yield found


def _may_grow(tile: Var, axis: int, launch: Launch) -> bool:
    stmts = list(walk(multiplied(launch.body, tile)))
    whole = {loop.body[-1] for loop in stmts if isinstance(loop, Parallel) and whole_store(loop) is not None}
    using = (stmt for stmt in stmts if stmt not in whole and any(map(tile.same_as, buffers(stmt))))
    return tile.scope() in _SCOPES and all(_admits(stmt, tile, axis) for stmt in using)


def multiplied(block: Block, tile: Var) -> Block:
    """A block up to the last product of a tile: what results pass through it behind that touches no zeros.
    All of it for a tile that has none."""
    products = (
        at
        for at, stmt in enumerate(block)
        if any(isinstance(inner, Gemm) and tile in buffers(inner) for inner in walk((stmt,)))
    )
    last = max(products, default=len(block) - 1)
    behind = (stmt for stmt in block[last + 1 :] if not isinstance(stmt, (Copy, Parallel)))
    return (*block[: last + 1], *behind)


def _admits(stmt: Stmt, tile: Var, axis: int) -> bool:
    """Whether a statement means the same to a tile that has zeros behind the end of an axis, and leaves
    zeros there, or writes all of the tile, so that zeros may stand in front of it."""
    if isinstance(stmt, Alloc):
        return (stmt.layout, stmt.asked) == (None, None)
    if isinstance(stmt, Gemm):
        return not stmt.c.buffer.same_as(tile)
    if isinstance(stmt, Fill):
        return covers(stmt.dst, axis) and clears(stmt)
    if isinstance(stmt, Copy) and stmt.dst.buffer.same_as(tile):
        return source_axis(stmt, axis) is not None or makes(stmt)
    if isinstance(stmt, Copy):
        return True
    return tile not in written(stmt) and any(reads(expr, {tile}) for expr in expressions(stmt))


def source_axis(copy: Copy, axis: int) -> int | None:
    """The axis of a tensor that a copy brings all of to all of an axis of a tile; None where it does not."""
    if on_chip(copy.src.buffer) or not covers(copy.dst, axis):
        return None
    source = next((source for source, target in sides(copy) if target == axis), None)
    return source if source is not None and covers(copy.src, source) else None


def whole_store(loop: Parallel) -> Store | None:
    """The store of a loop that writes all of a tile, its variables being the indices; None of others."""
    store = store_of(loop)
    return store if store is not None and stores_each_in_order(store, loop) else None


def makes(stmt: Copy | Parallel) -> bool:
    """Whether threads write all of a tile, of what they have in registers, and nothing of what it holds."""
    if isinstance(stmt, Copy):
        return (
            on_chip(stmt.src.buffer) and is_whole(stmt.dst) and not stmt.src.buffer.same_as(stmt.dst.buffer)
        )
    store, held = whole_store(stmt), _sources(stmt)
    return store is not None and store.buffer not in held and any(map(_is_held, held))


def fills(loop: Parallel) -> bool:
    """Whether a loop writes all of a tile, of nothing that threads have in registers."""
    store, held = whole_store(loop), _sources(loop)
    return store is not None and store.buffer not in held and not any(map(_is_held, held))


def _sources(loop: Parallel) -> set[Var]:
    return {load.source for load in loads_of(*loop.body)}


def _is_held(buffer: Var) -> bool:
    return str(buffer.scope()).startswith("local")
