"""Packed operands: which form a microkernel wants, and the loops that bring a matrix into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import For, Parallel, Region, Stmt, Store
from tilec.lowering.cpu.nodes import Matrix, MicroGemm, element
from tilec.lowering.cpu.storage import compute_type
from tilec.lowering.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Packing:
    """A tile ``buffer`` in a packed form. ``source`` is the matrix that is packed, with its stored type;
    ``matrix`` is what products read. ``panel`` is the width of the panels of ``b``, None for ``a``."""

    buffer: Var
    source: Matrix
    matrix: Matrix
    panel: int | None

    @property
    def form(self) -> tuple[object, ...]:
        """What two packings of one tile must agree in to be one."""
        return (self.panel, str(self.buffer.dtype), self.source.row, self.source.col)


def a_packing(gemm: MicroGemm) -> Packing | None:
    """Row-major in the compute type; None where ``a`` is best read as it is."""
    wanted = compute_type(str(gemm.c.buffer.dtype))
    region = gemm.a.region
    if str(region.buffer.dtype) == wanted:
        return None
    shape = (int_value(region.extent[gemm.a.row]), int_value(region.extent[gemm.a.col]))
    buffer = tirx.decl_buffer(shape, wanted, f"{region.buffer.name}_rows", scope="shared.dyn")
    return Packing(buffer, gemm.a, Matrix(_whole(buffer), 0, 1), None)


def b_packing(gemm: MicroGemm, staged: bool) -> Packing | None:
    """Panels as wide as the register block in the compute type; None where ``b`` is best read as it is.

    ``staged``: the packing replaces a copy, and costs nothing that the copy would not."""
    wanted, region = compute_type(str(gemm.c.buffer.dtype)), gemm.b.region
    readable = str(region.buffer.dtype) == wanted and gemm.b.col == len(region.start) - 1
    if readable and (gemm.b.panel is not None or not staged):
        return None
    width, columns = gemm.block.cols, int_value(gemm.c.extent[-1])
    shape = (-(-columns // width), int_value(region.extent[gemm.b.row]), width)
    buffer = tirx.decl_buffer(shape, wanted, f"{region.buffer.name}_panels", scope="shared.dyn")
    return Packing(buffer, gemm.b, Matrix(_whole(buffer), 1, 2, 0), width)


def _whole(buffer: Var) -> Region:
    """All of a tile."""
    zeros = tuple(tirx.const(0, "int32") for _ in buffer.shape)
    return Region(buffer, zeros, tuple(int_value(extent) for extent in buffer.shape))


def pack(packing: Packing, matrix: Matrix) -> list[Stmt]:
    """The statements that write ``matrix`` (in its own type first, where that is the narrower) into a packing."""
    if packing.panel is None:
        return [_rows(packing, matrix)]
    return [_panels(packing, matrix)]


def _rows(packing: Packing, matrix: Matrix) -> Stmt:
    r, c = tirx.Var("r", "int32"), tirx.Var("c", "int32")
    shape = tuple(int_value(extent) for extent in packing.buffer.shape)
    value = _value(packing, matrix, r, c)
    return Parallel((r, c), shape, (Store(packing.buffer, (r, c), value),))


def _panels(packing: Packing, matrix: Matrix) -> Stmt:
    p, k, c = (tirx.Var(name, "int32") for name in "pkc")
    count, depth, width = (int_value(extent) for extent in packing.buffer.shape)
    value = _value(packing, matrix, k, p * width + c)
    inner = Parallel((k, c), (depth, width), (Store(packing.buffer, (p, k, c), value),))
    zero, one, stop = (tirx.const(number, "int32") for number in (0, 1, count))
    return For("serial", p, zero, stop, one, (inner,))


def _value(packing: Packing, matrix: Matrix, row: Expr, col: Expr) -> Expr:
    """Element (row, col) as the tile would have held it, in the packed type."""
    value: Expr = tirx.BufferLoad(matrix.region.buffer, list(element(matrix, row, col)))
    for dtype in (str(packing.source.region.buffer.dtype), str(packing.buffer.dtype)):
        if dtype_of(value) != dtype:
            value = tirx.Cast(dtype, value)
    return value
