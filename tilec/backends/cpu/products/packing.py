"""Packed operands: which form a microkernel wants, and the loops that bring a matrix into it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm, PackPanels, PackWords, TransposePanels, element
from tilec.backends.cpu.products.forms.dot_forms import DotForm
from tilec.backends.cpu.products.forms.matrix_forms import PAIR, MatrixForm
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.tir import CACHE_LINE, index
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Parallel, Region, Stmt, Store
from tilec.lowering.analysis.regions import is_whole, static, stretched
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Packing:
    """A tile ``buffer`` in a packed form. ``source`` is the matrix that is packed, with its stored type;
    ``matrix`` is what products read. ``panel`` is the width of the panels of ``b``, None for ``a``; ``lanes``
    the vector length of the products; ``words`` the form whose words the elements of ``buffer`` are.
    ``counts`` are the rows and columns that are read; None: all that the tile has."""

    buffer: Var
    source: Matrix
    matrix: Matrix
    panel: int | None
    lanes: int
    words: DotForm | None = None
    counts: tuple[int | Expr, int | Expr] | None = None

    @property
    def form(self) -> tuple[object, ...]:
        """What two packings of one tile must agree in to be one."""
        return (self.panel, self.words, str(self.buffer.dtype), self.source.row, self.source.col)

    @property
    def transposes(self) -> bool:
        """Whether columns, which panels have side by side, are apart in the source."""
        return self.panel is not None and self.source.col != len(self.source.region.start) - 1

    @property
    def rearranges(self) -> bool:
        """Whether vectors of the source are taken apart: it then has to have all of them, without bounds to
        test."""
        return self.transposes or self.words is not None


def a_packing(gemm: MicroGemm, staged: bool) -> Packing | None:
    """``a`` in the type that products take, its rows in memory a cache line longer, or in pairs of rows where
    an instruction takes two; None where it is best read as it is. ``staged``: the packing replaces a copy,
    and costs nothing that the copy would not."""
    if gemm.block.form == "across":
        return None
    form, region = word_form(gemm.block.form), gemm.a.region
    if isinstance(form, MatrixForm):
        return _in_panels(replace(gemm.a, row=gemm.a.col, col=gemm.a.row), form.word, PAIR, PAIR, form)
    wanted = gemm.computed if form is None else form.stored
    readable = form is None or gemm.a.col == len(region.start) - 1
    held = str(region.buffer.dtype) == wanted if form is None else form.holds(str(region.buffer.dtype))
    if readable and held and not staged:
        return None
    axes = [gemm.a.row, gemm.a.col] if form is not None else sorted((gemm.a.row, gemm.a.col))
    extents = tuple(static(region.extent[axis]) for axis in axes)
    # Packed rows are a cache line longer than their elements, so that they start in different cache sets.
    shape = (extents[0], extents[1] + CACHE_LINE // element_bytes(wanted))
    buffer = tirx.decl_buffer(shape, wanted, f"{region.buffer.name}_rows", scope="shared.dyn")
    matrix = Matrix(_first(buffer, extents), axes.index(gemm.a.row), axes.index(gemm.a.col))
    return Packing(buffer, gemm.a, matrix, None, gemm.block.lanes)


def b_packing(gemm: MicroGemm, staged: bool) -> Packing | None:
    """``b`` in panels as wide as the register block, in the type that products take; None where it is best
    read as it is: in another type, if each element is read once. ``staged``: the packing replaces a copy, and
    costs nothing that the copy would not."""
    if gemm.block.form == "across":
        return None
    form, region = word_form(gemm.block.form), gemm.b.region
    wanted = gemm.computed if form is None else form.word
    once = form is None and static(gemm.a.region.extent[gemm.a.row]) <= gemm.block.rows
    readable = (once or str(region.buffer.dtype) == wanted) and gemm.b.col == len(region.start) - 1
    if readable and (gemm.b.panel is not None or not staged):
        return None
    width = gemm.block.cols if form is None else form.panel(gemm.block)
    return _in_panels(gemm.b, wanted, width, gemm.block.lanes, form)


def _in_panels(source: Matrix, wanted: str, width: int, lanes: int, form: DotForm | None) -> Packing:
    """All of ``source`` in panels of ``width`` columns; ``wanted`` is the type of what they hold."""
    extent = source.region.extent
    columns = math.prod(static(extent[axis]) for axis in (source.col, source.panel) if axis is not None)
    depth = static(extent[source.row]) // (1 if form is None else form.group)
    shape = (-(-columns // width), depth, width)
    buffer = tirx.decl_buffer(shape, wanted, f"{source.region.buffer.name}_panels", scope="shared.dyn")
    return Packing(buffer, source, Matrix(_first(buffer, shape), 1, 2, 0), width, lanes, form)


def has_part(packing: Packing, matrix: Matrix) -> bool:
    """Whether panels hold ``matrix``, a part of their tile, as a part of theirs: all of its columns, and
    words along K that are known."""
    region, group = matrix.region, 1 if packing.words is None else packing.words.group
    if is_whole(region):
        return True
    start, extent = int_value(region.start[matrix.row]), int_value(region.extent[matrix.row])
    if packing.panel is None or start is None or extent is None or start % group or extent % group:
        return False
    return is_whole(
        stretched(_moved(region, matrix.row, 0), matrix.row, static(region.buffer.shape[matrix.row]))
    )


def part_of_panels(packing: Packing, matrix: Matrix) -> Matrix:
    """Where a packing has ``matrix`` (`has_part`)."""
    own = packing.matrix
    if is_whole(matrix.region):
        return own
    group = 1 if packing.words is None else packing.words.group
    start, extent = (
        static(side[matrix.row]) // group for side in (matrix.region.start, matrix.region.extent)
    )
    return replace(own, region=stretched(_moved(own.region, own.row, start), own.row, extent))


def panels_of(packing: Packing, matrix: Matrix) -> PackPanels | None:
    """The statement that writes the ``counts`` of ``matrix``, which has all of them, into panels; None where
    that takes more than moving vectors."""
    if packing.panel is None or packing.counts is None or packing.rearranges or matrix.panel is not None:
        return None
    buffer = matrix.region.buffer
    if str(buffer.dtype) != str(packing.source.region.buffer.dtype) or not has_unit_stride(buffer):
        return None
    if matrix.col != len(matrix.region.start) - 1:
        return None
    return PackPanels(matrix, packing.matrix.region, *packing.counts, packing.lanes)


def whole_region(buffer: Var) -> Region:
    """All of a tile."""
    return _first(buffer, tuple(static(size) for size in buffer.shape))


def _moved(region: Region, axis: int, start: int) -> Region:
    """``region`` from ``start`` on along an axis."""
    starts = [index(start) if place == axis else own for place, own in enumerate(region.start)]
    return replace(region, start=tuple(starts))


def has_unit_stride(buffer: Var) -> bool:
    """Whether elements along the last axis are neighbours."""
    return not len(buffer.strides) or int_value(buffer.strides[-1]) == 1


def _first(buffer: Var, extents: tuple[int, ...]) -> Region:
    """The first elements of a tile."""
    return Region(buffer, tuple(tirx.const(0, "int32") for _ in extents), extents)


def pack(packing: Packing, matrix: Matrix, whose: Stmt) -> list[Stmt]:
    """The statements that write ``matrix``, as its tile would have held it, into a packing, for the sake of
    the statement ``whose``."""
    return [replace(made, loc=whose.loc) for made in _packed(packing, matrix)]


def _packed(packing: Packing, matrix: Matrix) -> list[Stmt]:
    if packing.panel is None:
        return [_rows(packing, matrix)]
    if packing.words is not None:
        rows, columns = packing.counts or (None, None)
        form = packing.words.name
        return [PackWords(matrix, packing.matrix.region, packing.lanes, form, columns, rows)]
    if packing.transposes:
        return _transposed(packing, matrix)
    depth, columns = _extents(packing)
    return [_panels(packing, matrix, (0, depth), (0, columns))]


def _rows(packing: Packing, matrix: Matrix) -> Stmt:
    """Loops over the packed tile along its own axes."""
    extents, own = list(packing.matrix.region.extent), packing.matrix
    if packing.counts is not None:
        extents[own.row], extents[own.col] = map(index, packing.counts)
    x, y = tirx.Var("x", "int32"), tirx.Var("y", "int32")
    zero = tirx.const(0, "int32")
    row, col = ((x, y)[axis] for axis in (own.row, own.col))
    return Parallel(
        (x, y), tuple(extents), (Store(packing.buffer, (x, y), _value(packing, matrix, row, zero, col)),)
    )


def _panels(packing: Packing, matrix: Matrix, rows: tuple[int, int], columns: tuple[int, int]) -> Stmt:
    """Loops over K and columns, each in [first, last)."""
    width = static(packing.buffer.shape[-1])
    k, c = tirx.Var("k", "int32"), tirx.Var("c", "int32")
    row = k + rows[0]
    depth = rows[1] - rows[0]
    if columns[0] == 0 and columns[1] % width == 0:
        p = tirx.Var("p", "int32")
        value = _value(packing, matrix, row, p * width, c)
        return Parallel(
            (k, p, c), (depth, columns[1] // width, width), (Store(packing.buffer, (p, row, c), value),)
        )
    col = c + columns[0]
    value = _value(packing, matrix, row, tirx.const(columns[0], "int32"), c)
    return Parallel(
        (k, c),
        (depth, columns[1] - columns[0]),
        (Store(packing.buffer, (col // width, row, col % width), value),),
    )


def _transposed(packing: Packing, matrix: Matrix) -> list[Stmt]:
    """Square blocks through registers, what is left over element by element."""
    depth, columns = static(matrix.region.extent[matrix.row]), static(matrix.region.extent[matrix.col])
    deep, wide = (count // packing.lanes * packing.lanes for count in (depth, columns))
    parts: list[Stmt] = []
    if deep and wide:
        region = stretched(stretched(matrix.region, matrix.row, deep), matrix.col, wide)
        inside = replace(matrix, region=region)
        parts.append(TransposePanels(inside, packing.matrix.region, packing.lanes))
    if deep < depth or not wide:
        parts.append(_panels(packing, matrix, (deep if wide else 0, depth), (0, columns)))
    if wide and wide < columns and deep:
        parts.append(_panels(packing, matrix, (0, deep), (wide, columns)))
    return parts


def _extents(packing: Packing) -> tuple[int, int]:
    """Rows and columns of the panels, padding included."""
    count, depth, width = (static(extent) for extent in packing.buffer.shape)
    return depth, count * width


def _value(packing: Packing, matrix: Matrix, row: Expr, first: Expr, step: Expr) -> Expr:
    """Element (row, first + step) as the tile would have held it, in the packed type; ``first`` is where a
    panel of the packing starts, which lies inside one panel of the source."""
    place = list(element(matrix, row, first))
    place[matrix.col] = place[matrix.col] + step
    value: Expr = tirx.BufferLoad(matrix.region.buffer, place)
    for dtype in (str(packing.source.region.buffer.dtype), str(packing.buffer.dtype)):
        if dtype_of(value) != dtype:
            value = tirx.Cast(dtype, value)
    return value
