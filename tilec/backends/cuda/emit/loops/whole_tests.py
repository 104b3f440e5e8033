"""Tests of bounds at multiples of what a thread has side by side, which are one for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.emit.products.lane_digits import convert_sum
from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, linear_in, substitute

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext


def whole_tests(cond: Expr, ctx: DeviceContext) -> Expr:
    """A condition in which ``index < extent`` asks for the first one of neighbours in registers, where the
    extent is a multiple of their number: compilers test each anew."""
    return all_of([_whole(part, ctx) for part in conjuncts(cond)])


def _whole(test: Expr, ctx: DeviceContext) -> Expr:
    if not isinstance(test, tirx.LT):
        return test
    index = ctx.facts.inline(test.a)
    for var, parts in ctx.digits.items():
        first, *others = parts or (None,)
        if first is None or not first.in_register or first.weight != 1 or first.size == 1:
            continue
        linear = linear_in(index, [var])
        if not linear or int_value(linear[0]) != 1:
            continue
        sizes = [test.b, linear[1], *(part.weight for part in others)]
        if all(divides(first.size, size, ctx.facts) for size in sizes):
            return tirx.LT(substitute(test.a, {var: convert_sum(others, dtype_of(var))}), test.b)
    return test
