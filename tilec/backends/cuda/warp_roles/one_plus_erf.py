"""1 + erf(x) in epilogues, as GELU has it: erfc(-x), in fewer instructions than erf itself.

A warpgroup's epilogue runs beside the products of another one: every instruction of an element counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device.intrinsics import horner
from tilec.backends.cuda.matmul.match import call_name
from tilec.lowering.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: log2(erfc(u)) = u Q(u) for u >= 0, our own fit (tools/fit_polynomials.py). Beyond 4.25 it falls faster than
#: the function does.
_LOG_ERFC = (
    -1.62795043, -0.917919874, -0.150384665, 0.0316033401, -0.00386069925, 5.12788465e-05, 5.05186763e-05,
    -4.61605123e-06,
)  # fmt: skip
_CODE = """
__device__ __forceinline__ float tilec_one_plus_erf(float x) {{
  float u = fabsf(x), tail = u * {logarithm};
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(tail));
  return x < 0.0f ? tail : 2.0f - tail;
}}
"""


def argument_of(expr: Expr) -> Expr | None:
    """The x of an expression 1 + erf(x) in float32, None for others."""
    if not isinstance(expr, tirx.Add) or dtype_of(expr) != "float32":
        return None
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if call_name(other) == "erf" and isinstance(one, tirx.FloatImm) and float(one.value) == 1.0:
            return other.args[0]
    return None


def one_plus_erf(x: Expr) -> Expr:
    """1 + erf(x), off by at most 8e-7; below 0 by at most 5e-5 of itself, down to x = -4.25."""
    code = _CODE.format(logarithm=horner(_LOG_ERFC, "u"))
    return T.cuda.func_call("tilec_one_plus_erf", x, source_code=code, return_type="float32")
