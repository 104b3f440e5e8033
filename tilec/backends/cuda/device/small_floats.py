"""Conversions between float32 and the 8-bit floats where no instruction has them: what
`tilec.lowering.math.float8` computes on CPUs.

They are functions because TVM writes the value of a name out at each of its uses, in what it simplifies and
in C: a number that is rounded three times would take a million characters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.dtypes import FLOAT_FORMATS, FloatFormat
from tilec.ir.interp.values import numpy_dtype

_MAGNITUDE, _INFINITY, _NAN, _QUIET = 0x7FFFFFFF, 0x7F800000, 0x7F, 0x7FC00000
#: float32 of this size are whole numbers: the low bits of what is added to it are that, to nearest.
_WHOLE = np.float32(2**23)


def _least(form: FloatFormat) -> float:
    """The smallest normal number."""
    return 2.0 ** (1 - form.bias)


def _step(form: FloatFormat) -> float:
    """The smallest number above 0."""
    return _least(form) * 2.0**-form.mantissa


@cache
def decoded(dtype: str) -> Helper:
    """The float32 that the bits of an 8-bit float stand for."""
    form, name = FLOAT_FORMATS[dtype], f"tilec_decoded_{dtype}"
    infinite = f"magnitude == {form.first_special} ? {_INFINITY} : " if form.has_infinity else ""
    return Helper(name, f"""
__device__ __forceinline__ float {name}(unsigned char bits) {{
  int byte = bits, magnitude = byte & 127;
  int normal = (magnitude << {23 - form.mantissa}) + {(127 - form.bias) << 23};
  int small = __float_as_int((float)magnitude * {_step(form)!r}f);
  int value = magnitude < {1 << form.mantissa} ? small : normal;
  if (magnitude >= {form.first_special}) value = {infinite}{_QUIET};
  return __int_as_float(value | (byte & 128) << 24);
}}
""", lambda lanes, bits: _values(dtype)[np.asarray(bits)])  # fmt: skip


@cache
def _values(dtype: str) -> np.ndarray:
    """What each byte stands for."""
    return np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype)).astype(np.float32)


@cache
def encoded(dtype: str) -> Helper:
    """The bits nearest to a float32, ties to even; finite ones beyond the largest become that."""
    form, name = FLOAT_FORMATS[dtype], f"tilec_encoded_{dtype}"
    shift, infinite = 23 - form.mantissa, form.first_special if form.has_infinity else None
    scale = 1 / _step(form)

    def meaning(lanes: Lanes, value: Any) -> Any:
        bits = lanes.bits(value, "uint32")
        whole = bits & np.uint32(_MAGNITUDE)
        magnitude = lanes.bits(whole, "float32")
        held = np.where(magnitude > form.largest, np.float32(form.largest), magnitude)
        made = lanes.bits(held, "uint32")
        nearest = (made + np.uint32((1 << (shift - 1)) - 1) + (made >> shift & 1)) >> shift
        small = lanes.bits(held * np.float32(scale) + _WHOLE, "uint32") & 31
        code = np.where(held < _least(form), small, nearest - ((127 - form.bias) << form.mantissa))
        code = np.where(whole > _INFINITY, _NAN, code)
        code = code if infinite is None else np.where(whole == _INFINITY, infinite, code)
        return (code | (bits >> 24 & 128)).astype(np.uint8)

    kept = "" if infinite is None else f"  if (whole == {_INFINITY}) code = {infinite};\n"
    return Helper(name, f"""
__device__ __forceinline__ unsigned char {name}(float value) {{
  unsigned bits = __float_as_uint(value), whole = bits & {_MAGNITUDE};
  float magnitude = __uint_as_float(whole);
  float held = magnitude > {form.largest!r}f ? {form.largest!r}f : magnitude;
  unsigned made = __float_as_uint(held);
  unsigned nearest = (made + {(1 << (shift - 1)) - 1} + (made >> {shift} & 1)) >> {shift};
  unsigned small = __float_as_uint(held * {scale!r}f + 8388608.0f) & 31;
  unsigned code = held < {_least(form)!r}f ? small : nearest - {(127 - form.bias) << form.mantissa};
  if (whole > {_INFINITY}) code = {_NAN};
{kept}  return (unsigned char)(code | (bits >> 24 & 128));
}}
""", meaning)  # fmt: skip


@cache
def rounded(dtype: str) -> Helper:
    """A float32 rounded to one of ``dtype``; those beyond the largest finite one, infinity included, become
    that."""
    form, name = FLOAT_FORMATS[dtype], f"tilec_rounded_{dtype}"
    dropped, largest, step = 23 - form.mantissa, form.largest, _step(form)

    def meaning(lanes: Lanes, value: Any) -> Any:
        value = np.full(lanes.count, value, np.float32)
        held = np.where(value > largest, np.float32(largest), value)
        held = np.where(held < -largest, np.float32(-largest), held)
        bits = lanes.bits(held, "uint32")
        nearest = bits + np.uint32((1 << (dropped - 1)) - 1) + (bits >> dropped & 1)
        normal = lanes.bits(nearest & np.uint32(-1 << dropped & 0xFFFFFFFF), "float32")
        normal = np.where(np.isnan(held), held, normal)
        small = np.rint(held * np.float32(1 / step)) * np.float32(step)
        return np.where(np.abs(held) < _least(form), small, normal)

    return Helper(name, f"""
__device__ __forceinline__ float {name}(float value) {{
  float held = value > {largest!r}f ? {largest!r}f : value;
  held = held < -{largest!r}f ? -{largest!r}f : held;
  unsigned bits = __float_as_uint(held), magnitude = bits & {_MAGNITUDE};
  unsigned nearest = bits + {(1 << (dropped - 1)) - 1} + (bits >> {dropped} & 1);
  float normal = __uint_as_float(nearest & {-1 << dropped & 0xFFFFFFFF}u);
  if (magnitude > {_INFINITY}) normal = held;
  float small = nearbyintf(held * {1 / step!r}f) * {step!r}f;
  return __uint_as_float(magnitude) < {_least(form)!r}f ? small : normal;
}}
""", meaning)  # fmt: skip
