"""The lines that `Print` and `Check` write: their texts taken apart, the same on every target.

Numbers come out as ``%d`` and ``%g`` of C have them; bools as 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Print
    from tilec.lowering.emission.context import Context


def pieces(stmt: Print, ctx: Context) -> Iterator[str | Expr]:
    """Texts and values in the order in which they are written; values as int64, uint64 or float64."""
    values = iter(stmt.values)
    for text, field, _, _ in Formatter().parse(stmt.text):
        if text:
            yield text
        if field is not None:
            yield wide(ctx.value(next(values)))


def wide(value: Expr) -> Expr:
    """A number in the widest type of its kind."""
    dtype = dtype_of(value)
    if dtype in ("bool", "int64", "uint64", "float64"):
        return tirx.Cast("int64", value) if dtype == "bool" else value
    kind = "uint64" if dtype.startswith("uint") else "int64" if dtype.startswith("int") else "float64"
    single = tirx.Cast("float32", value) if kind == "float64" and dtype != "float32" else value
    return tirx.Cast(kind, single)
