"""The product that is taken from another one in an exponent is rounded up.

    exp2(s * c - m * c)  ->  exp2(s * c - __fmul_ru(m, c))

Compilers make one instruction of the first product and the difference, in which it keeps all of its digits.
Beside a product rounded to the nearest the exponent of the largest score may then be above 0, by half of the
last digit: where scores are hidden by -1e30 that is 1e22, whose power is infinite, and with the 0 that it is
multiplied by later no number. So it is 0 or less wherever s is m or less and c is positive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call

from tilec.ir.exprs import EXPONENTIALS, dtype_of, rebuild, same
from tilec.lowering.emission.body_passes import body_pass

if TYPE_CHECKING:
    from tvm.ir import Expr

_PRODUCT = "__fmul_ru"


def round_up() -> Any:
    """The pass of functions of TVM that does so."""
    return body_pass("RoundUp", lambda _function: [(Call, _exponential)])


def _exponential(call: Call) -> Call:
    if getattr(call.op, "name", "") not in EXPONENTIALS or dtype_of(call) != "float32":
        return call
    exponent = call.args[0]
    if not isinstance(exponent, tirx.Sub) or not isinstance(exponent.a, tirx.Mul):
        return call
    second = _rounded(exponent.b, exponent.a)
    return call if second is None else rebuild(call, (tirx.Sub(exponent.a, second),))


def _rounded(expr: Expr, other: tirx.Mul) -> Expr | None:
    """A product that has a factor of another one, rounded up, or that and a number beside it; None of other
    expressions."""
    if isinstance(expr, (tirx.Add, tirx.Sub)) and isinstance(expr.b, tirx.FloatImm):
        product = _rounded(expr.a, other)
        return None if product is None else type(expr)(product, expr.b)
    if not isinstance(expr, tirx.Mul):
        return None
    shared = any(same(own, theirs) for own in (expr.a, expr.b) for theirs in (other.a, other.b))
    return tirx.call_pure_extern("float32", _PRODUCT, expr.a, expr.b) if shared else None
