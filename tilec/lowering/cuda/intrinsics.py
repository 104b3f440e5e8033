"""Intrinsics as CUDA has them: powers of two, and LLVM's maximum and minimum, which conversions of 8-bit
floats use."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.target import codegen
from tvm.tirx.script import builder as T

from tilec.errors import CompileError
from tilec.lowering.cpu.storage import is_nan
from tilec.lowering.exprs import dtype_of

if TYPE_CHECKING:
    from tvm.ir import Call, Expr


_EXP2 = """
__device__ __forceinline__ float tilec_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
"""


@cache
def register_intrinsics() -> None:
    """Tells TVM once how CUDA computes them."""
    _register_extremes()
    tirx.register_intrin_lowering("tirx.exp2", target="cuda", f=_exp2, level=99)


def _exp2(call: Call) -> Expr:
    """One instruction for float32, off by at most 2 ulp; results below the smallest normal number are 0
    (PTX ISA, ex2.approx.ftz.f32)."""
    (value,) = call.args
    if dtype_of(call) != "float32":
        return call
    return T.cuda.func_call("tilec_exp2", value, source_code=_EXP2, return_type="float32")


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
