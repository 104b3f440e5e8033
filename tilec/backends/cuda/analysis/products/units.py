"""What hardware units read and write in shared memory for themselves: operands of wgmma and tcgen05, boxes of
TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import BoxLoad, HeldProduct, TensorProduct, TensorStore, WarpgroupProduct
from tilec.ir.nodes import Alloc, Block, walk
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Var

    from tilec.ir.stmt import Region, Stmt

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
    read = {region.buffer for stmt in walk(body) for region in operands_of(stmt)}
    stored = {stmt.src.buffer for stmt in walk(body) if isinstance(stmt, TensorStore)}
    return stored | {tile for tile in read if tile.scope() == "shared.dyn"}


def operands_of(stmt: Stmt) -> tuple[Region, ...]:
    """What a product by a unit multiplies, but for operands in tensor memory."""
    if isinstance(stmt, (WarpgroupProduct, TensorProduct)):
        return stmt.a, stmt.b
    return (stmt.b,) if isinstance(stmt, HeldProduct) else ()


def _regions(body: Block) -> Iterator[Region]:
    for stmt in walk(body):
        yield from operands_of(stmt)
        if isinstance(stmt, BoxLoad):
            yield stmt.dst
        elif isinstance(stmt, TensorStore):
            yield stmt.src


def alignment_of(alloc: Alloc) -> int:
    """Where a tile of a unit may start: patterns go by addresses, and repeat after so many bytes."""
    swizzle = alloc.layout.swizzle if alloc.layout is not None else None
    if swizzle is None:
        return ALIGNMENT
    return swizzle.width * swizzle.row * element_bytes(str(alloc.buffer.dtype))
