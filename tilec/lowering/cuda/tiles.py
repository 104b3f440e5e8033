"""Tiles and their layouts, as inference and its rewriting share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.layout import Layout, Swizzle
from tilec.ir.layout_algebra import canonical, select
from tilec.ir.nodes import Parallel, Reduce, Region, Stmt, Store
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cuda.fragments import swizzle_width
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Var


def result_layout(stmt: Reduce, source: Layout) -> Layout:
    """The layout of a reduction's result: without the axis, or with one element there."""
    rank = len(source.digits)
    kept = select(source, [axis for axis in range(rank) if axis != stmt.axis])
    shape = static_extents(stmt.dst.buffer)
    if len(shape) == rank:
        return Layout((*kept.digits[: stmt.axis], (), *kept.digits[stmt.axis :]))
    return kept if kept.digits else Layout(((),))


def swizzled(tile: Var) -> Layout:
    """Row-major with the 16-byte chunks of a row permuted by the row."""
    shape, size = static_extents(tile), element_bytes(str(tile.dtype))
    plain = Layout.row_major(shape)
    width = swizzle_width(shape[-1] * size) if shape[-1] * size % 16 == 0 else 1
    if width == 1:
        return plain
    pitch = shape[-1]
    row = 128 // size if 128 % (pitch * size) == 0 else pitch
    return Layout(plain.digits, Swizzle(width, 16 // size, row))


def alike(left: Layout, right: Layout) -> bool:
    """Whether two layouts place every element in the same thread and register."""
    return canonical(left) == canonical(right)


def whole_tile(tile: Var) -> Region:
    """All of a tile."""
    shape = static_extents(tile)
    return Region(tile, (tirx.const(0, "int32"),) * len(shape), shape)


def is_whole(region: Region) -> bool:
    """Whether a region covers its tile."""
    return all(
        int_value(start) == 0 and int_value(extent) == size
        for start, extent, size in zip(
            region.start, region.extent, static_extents(region.buffer), strict=True
        )
    )


def static_extents(buffer: Var) -> tuple[int, ...]:
    """The extents of an on-chip tile."""
    return tuple(int_value(extent) or 0 for extent in buffer.shape)


def slices_of(region: Region) -> tuple[int, int]:
    """How many regions like this lie below and beside each other in the last two dimensions of its tile."""
    shape = static_extents(region.buffer)
    rows, columns = (shape[axis] // (int_value(region.extent[axis]) or 1) for axis in (-2, -1))
    return rows, columns


def every_element(source: Var, target: Var, origin: Stmt) -> Parallel:
    """A copy of one tile to another with a variable for every dimension, those of one element too."""
    shape = static_extents(source)
    variables = tuple(tirx.Var(f"i{axis}", "int32") for axis in range(len(shape)))
    value = tirx.BufferLoad(source, list(variables))
    return Parallel(variables, shape, (Store(target, variables, value, loc=origin.loc),), loc=origin.loc)
