"""Operands that go through a tile of their own: regions and views that an operation cannot name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.ir import nodes as ir
from tilec.language.tiles.memory.allocations import alloc_fragment, alloc_shared
from tilec.language.tiles.memory.boxes import Box, box, expression_of, same
from tilec.language.tiles.memory.buffers import Buffer, Slice
from tilec.language.tiles.memory.views import View
from tilec.language.tiles.operations.copies import copy
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import loc
from tilec.language.values.value import Value


def as_slice(operand: Box) -> Slice:
    """The operand as a region, whose axes of one element pair up with nothing in copies."""
    assert operand.extents is not None, "extents are settled before an operand is copied"
    return Slice(operand.buffer, operand.starts, operand.extents)


def copy_operand(
    operand: Box, allocate: Callable[..., Buffer], shape: tuple[Any, ...], *, filled: bool = True
) -> Buffer:
    """A tile of ``shape`` (ints, or expressions that are integers while building) with the elements of the
    operand; empty unless ``filled``."""
    sizes = tuple(extent if isinstance(extent, int) else Value(expression_of(extent)) for extent in shape)
    tile = allocate(sizes, operand.buffer.dtype)
    if filled:
        copy(as_slice(operand), as_slice(box(tile, "T.copy")))
    return tile


def write_back(tile: Buffer, operand: Box) -> None:
    """Copies a tile back to the operand that it stands for."""
    copy(as_slice(box(tile, "T.copy")), as_slice(operand))


def reduce_copies(kind: str, src: Box, dst: Box, axis: int, clear: bool, nan: bool) -> None:
    """A reduction between fragments without the axes of one element that regions and views leave in."""
    extents = src.extents or ()
    kept = [at for at, extent in enumerate(extents) if at == axis or not same(extent, 1)]
    left = tuple(extents[at] for at in kept if at != axis) or (1,)
    held = copy_operand(src, alloc_fragment, tuple(extents[at] for at in kept))
    result = copy_operand(dst, alloc_fragment, left, filled=not clear)
    whole = [box(tile, "T.reduce").region() for tile in (held, result)]
    stmt = ir.Reduce(kind, whole[0], whole[1], kept.index(axis), clear, nan, loc=loc())
    sessions.builder("T.reduce").emit(stmt, "T.reduce")
    write_back(result, dst)


def scan_copies(kind: str, src: Box, dst: Box, axis: int, reverse: bool) -> None:
    """A scan of a copy."""
    extents = src.extents or ()
    held = copy_operand(src, alloc_fragment, extents)
    result = copy_operand(dst, alloc_fragment, extents, filled=False)
    whole = [box(tile, "T.cumsum").region() for tile in (held, result)]
    stmt = ir.Scan(kind, whole[0], whole[1], axis, reverse, loc=loc())
    sessions.builder("T.cumsum").emit(stmt, "T.cumsum")
    write_back(result, dst)


def tile_of(operand: Box) -> Box:
    """The operand of a product; of a view a tile with its elements, in the same memory."""
    if not isinstance(operand.buffer, View):
        return operand
    extents = (operand.extents or ())[-2:]
    allocate = alloc_shared if operand.buffer.scope() == "shared.dyn" else alloc_fragment
    return box(copy_operand(operand, allocate, extents), "T.gemm")
