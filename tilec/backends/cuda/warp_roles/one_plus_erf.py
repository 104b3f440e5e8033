"""1 + erf(x) in epilogues, as GELU has it: erfc(-x), in fewer instructions than erf itself.

A warpgroup's epilogue runs beside the products of another one: every instruction of an element counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr


def argument_of(expr: Expr) -> Expr | None:
    """The x of an expression 1 + erf(x) in float32, None for others."""
    if not isinstance(expr, tirx.Add) or dtype_of(expr) != "float32":
        return None
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if call_name(other) == "erf" and isinstance(one, tirx.FloatImm) and float(one.value) == 1.0:
            return other.args[0]
    return None
