"""Integer divisions in TIR that never trap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value, scalar_dtype
from tilec.lowering.emission.powers_of_two import by_power
from tilec.lowering.math.vectors import Vectors, lanes_of, spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.emission.context import Context

#: What gives the same where neither operand is negative, without a fix for signs.
_TRUNCATED = {tirx.FloorDiv: tirx.Div, tirx.FloorMod: tirx.Mod}


def division(expr: Expr, left: Expr, right: Expr, ctx: Context) -> Expr:
    """The quotient or remainder ``expr`` of two values: by 0 it is 0, and that of the lowest number by -1
    wraps around. Lanes that read outside of a tensor, or whose condition is false, divide by whatever they
    find.

    Tests cost more than their instructions: a divisor stands in each, and it may be a quotient itself.
    TVM reads operands several times where it rounds down."""
    positive = _proves(tirx.GT, expr.b, ctx)
    right_natural = positive or _proves(tirx.GE, expr.b, ctx)
    left_natural = _proves(tirx.GE, expr.a, ctx) or (right_natural and _is_natural_by(expr, ctx))
    kind = type(expr)
    power = by_power(expr, left, right, ctx) if left_natural or kind in _TRUNCATED else None
    if power is not None:
        return power
    if left_natural and right_natural:
        kind = _TRUNCATED.get(kind, kind)
    v = Vectors(right)
    left, right = v.name_long(left), v.name_long(right)
    if positive or int_value(expr.b) not in (None, 0, -1):
        return v.close(kind(left, right))
    if left_natural or right_natural:
        return v.close(_but_by_zero(kind, left, right))
    return v.close(_but_by_zero_and_minus_one(kind, left, right))


def _is_natural_by(expr: Expr, ctx: Context) -> bool:
    """Whether what is divided is never negative where the divisor is positive: ``a + b - 1`` of a quotient
    that is rounded up. By 0 the outcome does not depend on it. Of a number it tells nothing new."""
    if int_value(expr.b) is not None:
        return False
    with ctx.facts.remember(tirx.GT(expr.b, tirx.const(0, dtype_of(expr.b)))):
        return _proves(tirx.GE, expr.a, ctx)


def _proves(comparison: type, expr: Expr, ctx: Context) -> bool:
    """Whether an integer always compares so with 0."""
    dtype = dtype_of(expr)
    if comparison is tirx.GE and dtype.startswith("u"):
        return True
    return ctx.facts.prove(comparison(expr, tirx.const(0, dtype))) is True


def _but_by_zero(kind: type, left: Expr, right: Expr) -> Expr:
    is_zero = tirx.EQ(right, _number(0, right))
    return tirx.Select(is_zero, _number(0, right), kind(left, tirx.Select(is_zero, _number(1, right), right)))


def _but_by_zero_and_minus_one(kind: type, left: Expr, right: Expr) -> Expr:
    zero, one = _number(0, right), _number(1, right)
    is_zero, is_minus = tirx.EQ(right, zero), tirx.EQ(right, _number(-1, right))
    found = kind(left, tirx.Select(tirx.Or(is_zero, is_minus), one, right))
    if kind in (tirx.FloorDiv, tirx.Div):
        found = tirx.Select(is_minus, zero - left, found)
    return tirx.Select(is_zero, zero, found)


def _number(value: int, like: Expr) -> Expr:
    """An integer in all lanes of ``like``."""
    return spread(tirx.const(value, scalar_dtype(like)), lanes_of(like))
