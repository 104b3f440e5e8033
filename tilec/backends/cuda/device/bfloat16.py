"""bfloat16 elements, stored as their bits, by the conversions of sm_80 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.tirx.script import builder as T

if TYPE_CHECKING:
    from tvm.ir import Expr

_TO = """
__device__ __forceinline__ unsigned short tilec_to_bfloat16(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
"""
_FROM = """
__device__ __forceinline__ float tilec_from_bfloat16(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}
"""


def to_bfloat16(value: Expr) -> Expr:
    """The bits nearest to a float32, ties to even."""
    return T.cuda.func_call("tilec_to_bfloat16", value, source_code=_TO, return_type="uint16")


def from_bfloat16(bits: Expr) -> Expr:
    """The float32 that bits stand for."""
    return T.cuda.func_call("tilec_from_bfloat16", bits, source_code=_FROM, return_type="float32")
