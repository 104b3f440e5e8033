"""What hardware units read and write in shared memory for themselves: operands of wgmma, boxes of TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import BoxLoad, TensorStore, WarpgroupProduct
from tilec.ir.nodes import Alloc, Block, walk
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Var

    from tilec.ir.stmt import Region

#: Tiles start at multiples of this: eight rows of 16 bytes, the period of swizzles.
ALIGNMENT = 128


def tiles_of_units(body: Block) -> set[Var]:
    """The shared tiles that products and bulk copies find by their addresses."""
    return {region.buffer for region in _regions(body) if region.buffer.scope() == "shared.dyn"}


def tiles_filled_by_units(body: Block) -> set[Var]:
    """Those of them that boxes are brought to."""
    return {stmt.dst.buffer for stmt in walk(body) if isinstance(stmt, BoxLoad)}


def tiles_read_by_units(body: Block) -> set[Var]:
    """Those of them that are read there."""
    read = (
        region for stmt in walk(body) if isinstance(stmt, WarpgroupProduct) for region in (stmt.a, stmt.b)
    )
    stored = {stmt.src.buffer for stmt in walk(body) if isinstance(stmt, TensorStore)}
    return stored | {region.buffer for region in read if region.buffer.scope() == "shared.dyn"}


def _regions(body: Block) -> Iterator[Region]:
    for stmt in walk(body):
        if isinstance(stmt, WarpgroupProduct):
            yield from (stmt.a, stmt.b)
        elif isinstance(stmt, BoxLoad):
            yield stmt.dst
        elif isinstance(stmt, TensorStore):
            yield stmt.src


def alignment_of(alloc: Alloc) -> int:
    """Where a tile of a unit may start: patterns go by addresses, and repeat after so many bytes."""
    swizzle = alloc.layout.swizzle if alloc.layout is not None else None
    if swizzle is None:
        return ALIGNMENT
    return swizzle.width * swizzle.row * element_bytes(str(alloc.buffer.dtype))
