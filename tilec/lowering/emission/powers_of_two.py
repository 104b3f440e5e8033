"""Quotients and remainders by powers of two that are known when code runs, such as ``1 << stage``: shifts and
masks. Divisions have no vector form on CPUs, and take a GPU some twenty instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.dtypes import DTYPES
from tilec.ir.exprs import DIVISIONS, dtype_of, int_value, scalar_dtype, walk
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import lanes_of, spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr

    from tilec.lowering.emission.context import Context


def by_power(expr: Expr, left: Expr, right: Expr, ctx: Context) -> Expr | None:
    """The floor of ``left`` over ``right``, or what is left of it, as ``expr`` says of which they are the
    values, where its divisor is written as a power of two that its type holds; else None."""
    divisor, dtype = ctx.facts.inline(expr.b), scalar_dtype(left)
    exponent = None if int_value(divisor) is not None else _exponent(divisor)
    if exponent is None or not _is_held(exponent, dtype, ctx):
        return None
    if isinstance(expr, (tirx.FloorMod, tirx.Mod)):
        return tirx.bitwise_and(left, right - spread(tirx.const(1, dtype), lanes_of(right)))
    return tirx.shift_right(left, spread(convert(ctx.value(exponent), dtype), lanes_of(left)))


def divides(exprs: Iterable[Expr], ctx: Context) -> bool:
    """Whether integers are divided by numbers of run time that are not written as powers of two."""
    wholes = (node for expr in exprs for node in walk(ctx.facts.inline(expr)))
    divisors = (node.b for node in wholes if isinstance(node, DIVISIONS))
    return any(int_value(divisor) is None and _exponent(divisor) is None for divisor in divisors)


def is_power(number: Expr) -> bool:
    """Whether a number is written as a power of two."""
    return _exponent(number) is not None


def _is_held(exponent: Expr, dtype: str, ctx: Context) -> bool:
    kind = dtype_of(exponent)
    least, beyond = (tirx.const(number, kind) for number in (0, DTYPES[dtype].bits - 1))
    return ctx.facts.prove(exponent >= least) is True and ctx.facts.prove(exponent < beyond) is True


def _exponent(expr: Expr) -> Expr | None:
    """The exponent of what is a power of two as it is written: 1 shifted, and products of such."""
    number = int_value(expr)
    if number is not None:
        exact = number > 0 and number & (number - 1) == 0
        return tirx.const(number.bit_length() - 1, "int32") if exact else None
    if isinstance(expr, tirx.Mul):
        return _sum(_exponent(expr.a), _exponent(expr.b))
    return _sum(_exponent(expr.a), expr.b) if isinstance(expr, tirx.LShift) else None


def _sum(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return None
    return left + convert(right, dtype_of(left))
