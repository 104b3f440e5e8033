"""Stores to panels: a matrix in strips of so many columns, each of which lies row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.tir import index, span
from tilec.lowering.analysis.regions import static

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Region


def store_to_panels(panels: Region, row: Expr, column: Expr, value: Expr, ctx: LaneContext) -> tirx.Stmt:
    """``value``, a vector of neighbours of one panel, from ``row`` and ``column`` of the matrix on."""
    storage, width = ctx.storage(panels.buffer), index(static(panels.extent[-1]))
    place = storage.offset([tirx.truncdiv(column, width), row, tirx.truncmod(column, width)])
    return tirx.BufferStore(storage.data, value, [span(place, value.ty.dtype.lanes)])
