"""Tiles and their layouts, as inference and its rewriting share them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int_value
from tilec.ir.layout import Layout, Swizzle
from tilec.ir.layout_algebra import bank_conflicts, canonical, select
from tilec.ir.nodes import Alloc, Block, Fill, Parallel, Reduce, Region, Stmt, Store, walk
from tilec.lowering.emission.storage import element_bytes

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


def swizzled(tile: Var, across: bool = False) -> Layout:
    """Row-major with the chunks of a row permuted by the row, such that reading eight rows of 16 bytes and
    writing whole rows meet as few banks twice as can be. ``across``: what is read of an operand lies across
    its rows, so that elements other than 16-bit ones go word by word, as float64 always does."""
    return _swizzled(static_extents(tile), element_bytes(str(tile.dtype)), across)


@lru_cache(maxsize=256)
def _swizzled(shape: tuple[int, ...], size: int, across: bool) -> Layout:
    plain = Layout.row_major(shape)
    pitch = shape[-1]
    if len(shape) < 2 or pitch * size % 16:
        return plain
    unit = 16 // size
    widths = (4, 2) if size == 8 else (8, 4, 2)  # half a warp reads four rows of 32 bytes of float64
    choices = [
        Layout(plain.digits, Swizzle(width, chunk, pitch * step))
        for chunk in (unit, 2 * unit)
        for width in widths
        if pitch % (chunk * width) == 0
        for step in (1, 2, 4)
    ]
    return min([*choices, plain], key=lambda layout: operand_conflicts(layout, size, across))


def has_words(size: int, across: bool) -> bool:
    """Whether lanes load an operand of elements of so many bytes word by word, as ldmatrix gives no other
    elements ``across`` K than 16-bit ones, and halves of float64 to two lanes."""
    return size == 8 or (across and size != 2)


def operand_conflicts(layout: Layout, size: int, across: bool) -> int:
    """How many times over banks are met when a product reads its operand, and when copies of whole rows
    write it, ``across`` its K or along it."""
    unit = 16 // size
    rows, pitch = layout.shape[-2:]
    chunks = pitch // unit
    runs = range(0, min(rows * chunks, 64), 8)
    writes = [[((run + n) // chunks % rows, (run + n) % chunks * unit) for n in range(8)] for run in runs]
    return read_conflicts(layout, size, across) + max(_chunk_conflicts(layout, run, size) for run in writes)


def read_conflicts(layout: Layout, size: int, across: bool) -> int:
    """The ways of one load of a warp of a product's operand: eight rows of 16 bytes, or a word for every
    lane."""
    rows, pitch = layout.shape[-2:]
    if pitch * size % 16 == 0 and not has_words(size, across):
        return _chunk_conflicts(layout, [(row % rows, 0) for row in range(8)], size)
    lead, count = (0,) * (len(layout.shape) - 2), max(1, 4 // size)
    lanes = [(lane // 4, lane % 4 * count) for lane in range(32)]
    places = [(k % rows, item % pitch) if across else (item % rows, k % pitch) for item, k in lanes]
    return bank_conflicts([layout.offset((*lead, *place)) for place in places], size)


def _chunk_conflicts(layout: Layout, places: Sequence[tuple[int, int]], size: int) -> int:
    """The ways of eight lanes that access 16 bytes each."""
    lead = (0,) * (len(layout.shape) - 2)
    return bank_conflicts([layout.offset((*lead, *place)) for place in places], size, 16 // size, together=8)


def alike(left: Layout, right: Layout) -> bool:
    """Whether two layouts place every element in the same thread and register."""
    return canonical(left) == canonical(right)


def whole_tile(tile: Var) -> Region:
    """All of a tile."""
    shape = static_extents(tile)
    return Region(tile, (tirx.const(0, "int32"),) * len(shape), shape)


def layouts_in(block: Block) -> dict[Var, Layout]:
    """The layouts of the tiles that a block allocates, where these have some."""
    allocs = (stmt for stmt in walk(block) if isinstance(stmt, Alloc))
    return {alloc.buffer: alloc.layout for alloc in allocs if alloc.layout is not None}


def clears(fill: Fill) -> bool:
    """Whether what is filled is set to 0."""
    return isinstance(fill.value, (tirx.IntImm, tirx.FloatImm)) and fill.value.value == 0


def is_whole(region: Region) -> bool:
    """Whether a region covers its tile."""
    return all(
        int_value(start) == 0 and int_value(extent) == size
        for start, extent, size in zip(
            region.start, region.extent, static_extents(region.buffer), strict=True
        )
    )


def is_slice(region: Region) -> bool:
    """Whether an accumulator is a whole fragment, or one of equal slices of it."""
    sizes = zip(region.buffer.shape, region.extent, strict=True)
    return all(int_value(whole) % int_value(part) == 0 for whole, part in sizes)  # type: ignore[operator]


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
