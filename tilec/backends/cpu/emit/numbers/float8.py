"""8-bit floats as float32 by way of float16, which one instruction converts, denormal numbers included.

float8_e5m2 is the upper half of a float16. The exponent of float8_e4m3fn is one bit shorter, its bias 8 less:
in the place of a float16's it is the number over 2^8. Formats: `tilec.dtypes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.dtypes import FLOAT_FORMATS
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

_HALF = FLOAT_FORMATS["float16"]


def decode_by_half(raw: Expr, dtype: str) -> Expr:
    """The float32 values of bytes (uint8, any lane count); exact. NaN stays NaN."""
    form, v = FLOAT_FORMATS[dtype], Vectors(raw)
    shift = _HALF.mantissa - form.mantissa
    signed = v.cast(v.reinterpret(raw, "int8"), "int16")
    bits = v.bind(v.reinterpret(signed, "uint16") << v.const(shift, "uint16"), "bits")
    if form.exponent == _HALF.exponent:
        return v.close(_value(v, bits))
    return v.close(_value(v, _with_exponent(v, bits, shift)) * v.const(2.0 ** (_HALF.bias - form.bias)))


def _value(v: Vectors, bits: Expr) -> Expr:
    return v.cast(v.reinterpret(bits, "float16"), "float32")


def _with_exponent(v: Vectors, bits: Expr, shift: int) -> Expr:
    """``bits`` with the highest bit of the exponent, where the sign stands a second time: 1 where one more in
    the last place changes what stands there. That is so where all places below are 1, in NaN alone."""
    following = bits + v.const(1 << shift, "uint16")
    return bits ^ (following & v.const(0x4000, "uint16"))
