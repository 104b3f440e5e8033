"""Intrinsics as CUDA has them: powers of two, erf, and LLVM's maximum and minimum, which conversions of 8-bit
floats use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.target import codegen
from tvm.tirx.script import builder as T

from tilec.errors import CompileError
from tilec.ir.extremes import DROPPING, KEEPING
from tilec.lowering.emission.storage import is_nan
from tilec.lowering.exprs import dtype_of
from tilec.lowering.math.erf import ERF_LIMIT, ERF_P, ERF_Q

if TYPE_CHECKING:
    from tvm.ir import Call, Expr


_EXP2 = """
__device__ __forceinline__ float tilec_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
"""
#: erf(x) = x P(x^2) / Q(x^2) as on CPUs, without a branch: neighbouring elements interleave. NaN stays NaN.
_ERF = """
__device__ __forceinline__ float tilec_erf(float x) {{
  float square, inverse, value = x * x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(square) : "f"(value), "f"({limit}f));
  float top = {top};
  float bottom = {bottom};
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(bottom));
  value = x * top * inverse;
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(1.0f));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(-1.0f));
  return value;
}}
"""


#: One instruction from sm_80 on (PTX ISA, max.NaN.f32).
_KEEPING = """
__device__ __forceinline__ float tilec_{name}(float left, float right) {{
  float result;
  asm("{kind}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
}}
"""


@cache
def register_intrinsics() -> None:
    """Tells TVM once how CUDA computes them."""
    _register_extremes()
    tirx.register_intrin_lowering("tirx.exp2", target="cuda", f=_exp2, level=99)
    tirx.register_intrin_lowering("tirx.erf", target="cuda", f=_erf, level=99)
    tirx.register_intrin_lowering("tirx.round", target="cuda", f=_round, level=99)


def _exp2(call: Call) -> Expr:
    """One instruction for float32, off by at most 2 ulp; results below the smallest normal number are 0
    (PTX ISA, ex2.approx.ftz.f32)."""
    (value,) = call.args
    if dtype_of(call) == "float64":
        return tirx.call_pure_extern("float64", "exp2", value)
    if dtype_of(call) != "float32":
        return call
    return T.cuda.func_call("tilec_exp2", value, source_code=_EXP2, return_type="float32")


def keeping_nan(kind: str, left: Expr, right: Expr) -> Expr:
    """max or min of floats that is NaN where either operand is."""
    if dtype_of(left) == "float64":
        numbers = DROPPING[kind](left, right)
        return tirx.Select(is_nan(left), left, tirx.Select(is_nan(right), right, numbers))
    name = KEEPING[kind]
    code = _KEEPING.format(name=name, kind=kind)
    return T.cuda.func_call(f"tilec_{name}", left, right, source_code=code, return_type="float32")


def _round(call: Call) -> Expr:
    """Ties away from zero; TVM's own rule is that of nearbyint."""
    (value,) = call.args
    if dtype_of(call) == "float64":
        return tirx.call_pure_extern("float64", "round", value)
    nearest = tirx.call_pure_extern("float32", "roundf", tirx.Cast("float32", value))
    return nearest if dtype_of(call) == "float32" else tirx.Cast(dtype_of(call), nearest)


def _erf(call: Call) -> Expr:
    """Float32 in about 20 instructions, off by at most 6 ulp (3.5e-7 near 1); in [-1, 1]."""
    (value,) = call.args
    if dtype_of(call) != "float32":
        return call
    top, bottom = (horner(numbers, "square") for numbers in (ERF_P, ERF_Q))
    code = _ERF.format(limit=_single(ERF_LIMIT**2), top=top, bottom=bottom)
    return T.cuda.func_call("tilec_erf", value, source_code=code, return_type="float32")


def horner(coefficients: Sequence[float], name: str) -> str:
    """The C text of a polynomial in ``name``, its constant first in ``coefficients``."""
    *others, text = (f"{_single(number)}f" for number in coefficients)
    for number in reversed(others):
        text = f"fmaf({text}, {name}, {number})"
    return text


def _single(value: float) -> str:
    """The digits that tell float32 apart, with a point."""
    return f"{value:#.9g}"


def _register_extremes() -> None:
    """fmax and fmin, except that a NaN on the left stays."""
    pairs = (("llvm.maximum", tirx.Max), ("llvm.minimum", tirx.Min))
    kinds = {codegen.llvm_lookup_intrinsic_id(name): kind for name, kind in pairs}

    def lowered(call: Call) -> Expr:
        number, left, right = call.args
        kind = kinds.get(int(number.value))
        if kind is None:
            raise CompileError(f"CUDA has no form of LLVM intrinsic {int(number.value)}")
        return tirx.Select(is_nan(left), left, kind(left, right))

    tirx.register_intrin_lowering("tirx.call_llvm_pure_intrin", target="cuda", f=lowered, level=99)
