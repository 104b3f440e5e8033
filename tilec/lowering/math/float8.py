"""Conversions between float32 and the 8-bit floats, in integer arithmetic, for any lane count.

float8_e4m3fn has no infinity and one NaN per sign; float8_e5m2 is the upper half of a float16. Formats:
`tilec.dtypes`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.dtypes import DTYPES, FLOAT_FORMATS, FloatFormat
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr


#: The types that `decode_float8` and `encode_float8` know.
FLOAT8_TYPES = tuple(name for name in FLOAT_FORMATS if DTYPES[name].bits == 8)
_NAN = 0x7F
_INFINITY_BITS = 0x7F800000


def decode_float8(raw: Expr, dtype: str) -> Expr:
    """The float32 values of bytes (uint8, any lane count); exact."""
    form, v = FLOAT_FORMATS[dtype], Vectors(raw)
    byte = v.bind(v.cast(raw, "int32"), "byte")
    magnitude = v.bind(byte & v.const(0x7F, "int32"), "magnitude")
    rebias = v.const((127 - form.bias) << 23, "int32")
    normal = v.from_bits((magnitude << v.const(23 - form.mantissa, "int32")) + rebias)
    smallest = v.const(2.0 ** (1 - form.bias - form.mantissa))
    small = v.cast(magnitude, "float32") * smallest
    value = v.select(magnitude < v.const(1 << form.mantissa, "int32"), small, normal)
    value = v.select(magnitude < v.const(form.first_special, "int32"), value, _special(v, form, magnitude))
    sign = (byte & v.const(0x80, "int32")) << v.const(24, "int32")
    return v.close(v.with_sign(value, sign))


def encode_float8(value: Expr, dtype: str) -> Expr:
    """The bytes (uint8) nearest to float32 values, ties to even; finite values beyond the largest one become
    that. NaN stays NaN; infinity stays where the format has one, else it is the largest finite value."""
    form, v = FLOAT_FORMATS[dtype], Vectors(value)
    value = v.bind(value, "value")
    magnitude = v.clamp(v.abs(value), 0.0, form.largest)
    bits = v.bind(v.bits(magnitude), "bits")
    shift = v.const(23 - form.mantissa, "int32")
    tie = (bits >> shift) & v.const(1, "int32")
    rounded = (bits + v.const((1 << (22 - form.mantissa)) - 1, "int32") + tie) >> shift
    normal = rounded - v.const((127 - form.bias) << form.mantissa, "int32")
    small = _nearest(v, magnitude * v.const(2.0 ** (form.bias - 1 + form.mantissa)))
    code = v.select(magnitude < v.const(2.0 ** (1 - form.bias)), small, normal)
    code = v.select(bits > v.const(_INFINITY_BITS, "int32"), v.const(_NAN, "int32"), code)
    if form.has_infinity:
        infinite = v.equal(v.bits(v.abs(value)), v.const(_INFINITY_BITS, "int32"))
        code = v.select(infinite, v.const(form.first_special, "int32"), code)
    sign = (v.bits(value) >> v.const(24, "int32")) & v.const(0x80, "int32")
    return v.close(v.cast(code | sign, "uint8"))


def round_float8(value: Expr, dtype: str) -> Expr:
    """float32 values rounded to ones of ``dtype``, ties to even, as casts demand: what lies beyond the
    largest finite one, infinity included, becomes that. NaN stays NaN."""
    form, v = FLOAT_FORMATS[dtype], Vectors(value)
    value = v.bind(v.clamp(value, -form.largest, form.largest), "value")
    bits = v.bind(v.bits(value), "bits")
    dropped = 23 - form.mantissa
    tie = (bits >> v.const(dropped, "int32")) & v.const(1, "int32")
    nearest = bits + v.const((1 << (dropped - 1)) - 1, "int32") + tie
    normal = v.from_bits(nearest & v.const(-1 << dropped, "int32"))
    step = 2.0 ** (1 - form.bias - form.mantissa)
    small = v.nearest(value * v.const(1 / step)) * v.const(step)
    magnitude = v.bind(bits & v.const(0x7FFFFFFF, "int32"), "magnitude")
    normal = v.select(magnitude > v.const(_INFINITY_BITS, "int32"), value, normal)
    return v.close(v.select(v.from_bits(magnitude) < v.const(2.0 ** (1 - form.bias)), small, normal))


def _special(v: Vectors, form: FloatFormat, magnitude: Expr) -> Expr:
    number = v.const(math.nan)
    if not form.has_infinity:
        return number
    infinite = v.equal(magnitude, v.const(form.first_special, "int32"))
    return v.select(infinite, v.const(math.inf), number)


def _nearest(v: Vectors, x: Expr) -> Expr:
    """x in [0, 16], or NaN, rounded to an integer, ties to even: the low bits of x + 2^23."""
    return v.bits(x + v.const(2.0**23)) & v.const(0x1F, "int32")
