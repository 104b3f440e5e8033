"""Functions of floats, and conversions between their formats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.lowering.math.erf import ERF_LIMIT, ERF_P, ERF_Q

#: Floats of which one instruction makes two (PTX ISA, cvt), by their names there; of 8 bits from sm_89 on.
PAIRED = {"float16": "f16", "bfloat16": "bf16"}
SMALL_PAIRED = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
#: log2(erfc(u)) = u Q(u) for u >= 0, our own fit (tools/fit_polynomials.py). Beyond 4.25 it falls faster than
#: the function does.
_LOG_ERFC = (
    -1.62795043, -0.917919874, -0.150384665, 0.0316033401, -0.00386069925, 5.12788465e-05, 5.05186763e-05,
    -4.61605123e-06,
)  # fmt: skip


def _horner(coefficients: Sequence[float], name: str) -> str:
    """The C text of a polynomial in ``name``, its constant first in ``coefficients``."""
    *others, text = (f"{_single(number)}f" for number in coefficients)
    for number in reversed(others):
        text = f"fmaf({text}, {name}, {number})"
    return text


def _polynomial(lanes: Lanes, coefficients: Sequence[float], value: Any) -> Any:
    """What `_horner` computes."""
    *others, made = (np.float32(number) for number in coefficients)
    for number in reversed(others):
        made = lanes.cuda("fmaf", made, value, number)
    return made


def _single(value: float) -> str:
    """The digits that tell float32 apart, with a point."""
    return f"{value:#.9g}"


# ---- powers of two, erf ----


def _exp2(lanes: Lanes, x: Any) -> Any:
    return lanes.ptx("ex2.approx.ftz.f32", x)


#: Off by at most 2 ulp; results below the smallest normal number are 0 (PTX ISA, ex2.approx.ftz.f32).
EXP2 = Helper("tilec_exp2", """
__device__ __forceinline__ float tilec_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
""", _exp2)  # fmt: skip


def _erf(lanes: Lanes, x: Any) -> Any:
    square = lanes.ptx("min.NaN.f32", x * x, np.float32(_single(ERF_LIMIT**2)))
    top, bottom = (_polynomial(lanes, numbers, square) for numbers in (ERF_P, ERF_Q))
    value = x * top * lanes.ptx("rcp.approx.ftz.f32", bottom)
    value = lanes.ptx("min.NaN.f32", value, np.float32(1))
    return lanes.ptx("max.NaN.f32", value, np.float32(-1))


#: erf(x) = x P(x^2) / Q(x^2) as on CPUs, without a branch: neighbouring elements interleave. NaN stays NaN.
#: About 20 instructions, off by at most 6 ulp (3.5e-7 near 1); in [-1, 1].
ERF = Helper("tilec_erf", f"""
__device__ __forceinline__ float tilec_erf(float x) {{
  float square, inverse, value = x * x;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(square) : "f"(value), "f"({_single(ERF_LIMIT**2)}f));
  float top = {_horner(ERF_P, "square")};
  float bottom = {_horner(ERF_Q, "square")};
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(bottom));
  value = x * top * inverse;
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(1.0f));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(-1.0f));
  return value;
}}
""", _erf)  # fmt: skip


def _one_plus_erf(lanes: Lanes, x: Any) -> Any:
    u = np.abs(x)
    tail = lanes.ptx("ex2.approx.ftz.f32", u * _polynomial(lanes, _LOG_ERFC, u))
    return np.where(x < 0, tail, np.float32(2) - tail)


#: 1 + erf(x), off by at most 8e-7; below 0 by at most 5e-5 of itself, down to x = -4.25.
ONE_PLUS_ERF = Helper("tilec_one_plus_erf", f"""
__device__ __forceinline__ float tilec_one_plus_erf(float x) {{
  float u = fabsf(x), tail = u * {_horner(_LOG_ERFC, "u")};
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(tail));
  return x < 0.0f ? tail : 2.0f - tail;
}}
""", _one_plus_erf)  # fmt: skip


def _sigmoid(lanes: Lanes, value: Any) -> Any:
    return lanes.cuda("__fdividef", np.float32(1), np.float32(1) + lanes.cuda("expf", -value))


#: 1 / (1 + exp(-value)) with the division that has no slow path: its operand is at least 1, and beyond
#: 2**126, where the exact division would go that way, the result is below the normal numbers.
SIGMOID = Helper(
    "tilec_sigmoid",
    "__forceinline__ __device__ float tilec_sigmoid(float value) {\n"
    "  return __fdividef(1.0f, 1.0f + expf(-value));\n}\n",
    _sigmoid,
)


@cache
def keeping_nan(name: str, kind: str) -> Helper:
    """max or min (``kind``) that is NaN where either operand is: one instruction from sm_80 on."""
    return Helper(f"tilec_{name}", f"""
__device__ __forceinline__ float tilec_{name}(float left, float right) {{
  float result;
  asm("{kind}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(left), "f"(right));
  return result;
}}
""", lambda lanes, left, right: lanes.ptx(f"{kind}.NaN.f32", left, right))  # fmt: skip


# ---- conversions ----

#: The bits nearest to a float32, ties to even.
TO_BFLOAT16 = Helper("tilec_to_bfloat16", """
__device__ __forceinline__ unsigned short tilec_to_bfloat16(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
""", lambda lanes, value: lanes.ptx("cvt.rn.bf16.f32", value))  # fmt: skip

#: The float32 that bits stand for: of either half of a word one instruction, where a shift takes two.
FROM_BFLOAT16 = Helper("tilec_from_bfloat16", """
__device__ __forceinline__ float tilec_from_bfloat16(unsigned short bits) {
  float value;
  asm("mov.b32 %0, {%1, %2};" : "=f"(value) : "h"((unsigned short)0), "h"(bits));
  return value;
}
""", lambda lanes, bits: lanes.ptx("cvt.f32.bf16", bits))  # fmt: skip


@cache
def from_small(dtype: str) -> Helper:
    """The float32 that the bits of an 8-bit float stand for."""
    kind = SMALL_PAIRED[dtype]
    name = f"tilec_from_{kind}"

    def meaning(lanes: Lanes, bits: Any) -> Any:
        return lanes.ptx("cvt.f32.f16", lanes.ptx(f"cvt.rn.f16x2.{kind}x2", bits) & 0xFFFF)

    return Helper(name, f"""
__device__ __forceinline__ float {name}(unsigned char bits) {{
  unsigned pair;
  float value;
  asm("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)bits));
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)pair));
  return value;
}}
""", meaning)  # fmt: skip


@cache
def halves(dtype: str) -> Helper:
    """A pair of 8-bit floats as a pair of float16, which holds them exactly."""
    kind = SMALL_PAIRED[dtype]
    name = f"tilec_halves_{kind}"
    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}(unsigned short bits) {{
  unsigned pair;
  asm("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(pair) : "h"(bits));
  return pair;
}}
""", lambda lanes, bits: lanes.ptx(f"cvt.rn.f16x2.{kind}x2", bits))  # fmt: skip


@cache
def half_of(number: int) -> Helper:
    """One half, 0 or 1, of a pair of float16 as float32."""
    name, pair = f"tilec_half_{number}", "pair >> 16" if number else "pair"
    return Helper(name, f"""
__device__ __forceinline__ float {name}(unsigned pair) {{
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)({pair})));
  return value;
}}
""", lambda lanes, pair: lanes.ptx("cvt.f32.f16", pair >> 16 * number & 0xFFFF))  # fmt: skip


#: A float32 of 2**23 or 1.5 * 2**23 counts ones in its low bits: naturals below 2 * FEW, or integers from
#: -FEW on, are put there, and the power taken away. Of these two instructions at the full rate the first one
#: joins a mask or a sum in front of it; conversions have a part of that rate.
FEW = 1 << 22
FROM_NATURAL = Helper("tilec_from_natural", """
__device__ __forceinline__ float tilec_from_natural(unsigned number) {
  return __uint_as_float(number | 0x4B000000u) - 8388608.0f;
}
""", lambda lanes, number: lanes.bits(number | 0x4B000000, "float32") - np.float32(2 * FEW))  # fmt: skip
FROM_SMALL = Helper("tilec_from_small", """
__device__ __forceinline__ float tilec_from_small(int number) {
  return __int_as_float(number + 0x4B400000) - 12582912.0f;
}
""", lambda lanes, number: lanes.bits(number + 0x4B400000, "float32") - np.float32(3 * FEW))  # fmt: skip

#: The bits that ``mask`` has, from ``shift`` on, of a word as float32, less a whole number: a float of
#: 2**(23 - shift) counts ones from that bit on.
FIELD = Helper("tilec_field", """
__device__ __forceinline__ float tilec_field(unsigned word, unsigned mask, int shift, float less) {
  unsigned power = unsigned(150 - shift) << 23;
  unsigned bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(bits) : "r"(word), "r"(mask << shift), "r"(power));
  return __uint_as_float(bits) - (__uint_as_float(power) + less);
}
""", lambda lanes, word, mask, shift, less: _field(lanes, word, mask, shift, less))  # fmt: skip


def _field(lanes: Lanes, word: Any, mask: Any, shift: Any, less: Any) -> Any:
    power = np.uint32(150) - np.asarray(shift).astype(np.uint32) << np.uint32(23)
    bits = lanes.ptx("lop3.b32", word, mask << np.asarray(shift).astype(np.uint32), power, 0xEA)
    return lanes.bits(bits, "float32") - (lanes.bits(power, "float32") + less)


#: The bits of a float32 rounded to TF32, to nearest.
TF32 = Helper("tilec_tf32", """
__device__ __forceinline__ unsigned tilec_tf32(unsigned bits) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}
""", lambda lanes, bits: lanes.ptx("cvt.rna.tf32.f32", lanes.bits(bits, "float32")))  # fmt: skip


@cache
def pack(dtype: str) -> Helper:
    """Two float32 rounded to 16 bits, in one word."""
    name, kind = f"tilec_pack_{dtype}x2", PAIRED[dtype]
    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}(float low, float high) {{
  unsigned bits;
  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}}
""", lambda lanes, low, high: lanes.ptx(f"cvt.rn.{kind}x2.f32", high, low))  # fmt: skip


@cache
def pack_small(dtype: str) -> Helper:
    """Two float32 rounded to 8 bits, in half a word; beyond the largest finite value they become that."""
    name, kind = f"tilec_pack_{dtype}x2", SMALL_PAIRED[dtype]
    return Helper(name, f"""
__device__ __forceinline__ unsigned short {name}(float low, float high) {{
  unsigned short bits;
  asm("cvt.rn.satfinite.{kind}x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
}}
""", lambda lanes, low, high: lanes.ptx(f"cvt.rn.satfinite.{kind}x2.f32", high, low))  # fmt: skip
