"""Whole parts of a number, ``x // n * n``, and what they leave of it: neither exceeds it, as whole waves of
tiles do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.numbers.host_bounds import Ends, Known
from tilec.ir.analysis.numbers.intervals import Interval
from tilec.ir.exprs import same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var


def whole_of(expr: Expr, values: Mapping[Var, Expr]) -> tuple[Expr, Expr] | None:
    """The x and the n of ``x // n * n``, or of a name that has such a value; None for others."""
    expr = values.get(expr, expr)
    if not isinstance(expr, tirx.Mul):
        return None
    for quotient, factor in ((expr.a, expr.b), (expr.b, expr.a)):
        if isinstance(quotient, tirx.FloorDiv) and same(quotient.b, factor):
            return quotient.a, factor
    return None


def rest_of(expr: Expr, values: Mapping[Var, Expr]) -> tuple[Expr, Expr] | None:
    """The x and the n of ``x - x // n * n``; None for others."""
    whole = whole_of(expr.b, values) if isinstance(expr, tirx.Sub) else None
    return whole if whole is not None and same(whole[0], expr.a) else None


def range_of_whole(x: Known, n: Known) -> tuple[Interval, Ends] | None:
    """The range of ``x // n * n``; None where x may be negative or n not positive."""
    if x.range.low < 0 or n.range.low < 1:
        return None
    return Interval(0, x.range.high), Ends(tirx.const(0, "int64"), x.ends.most)


def range_of_rest(x: Known, n: Known) -> tuple[Interval, Ends] | None:
    """The range of ``x - x // n * n``; None as in `range_of_whole`."""
    if x.range.low < 0 or n.range.low < 1:
        return None
    most = None if n.ends.most is None else n.ends.most - 1
    return Interval(0, n.range.high - 1), Ends(tirx.const(0, "int64"), most)
