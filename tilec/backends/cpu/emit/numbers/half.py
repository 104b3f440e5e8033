"""float16 as float32 and back in integer arithmetic of vectors, for targets that have no instruction for it:
LLVM would call a function for every element there. Formats: `tilec.dtypes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.dtypes import FLOAT_FORMATS
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

_HALF = FLOAT_FORMATS["float16"]
#: Digits of a float32 that a float16 has not; what its exponents are above a float16's, as bits of that.
_DROPPED, _REBIAS = 23 - _HALF.mantissa, 127 - _HALF.bias << _HALF.mantissa
_INFINITY = 0x7F800000
_SMALLEST_NORMAL, _SMALLEST = 2.0 ** (1 - _HALF.bias), 2.0 ** (1 - _HALF.bias - _HALF.mantissa)
#: Beside this number the last digit of a float32 is the smallest float16.
_BESIDE = _SMALLEST * 2.0**23


def decode_half(raw: Expr) -> Expr:
    """The float32 values of float16 ones; exact."""
    v = Vectors(raw)
    bits = v.bind(v.cast(v.reinterpret(raw, "uint16"), "int32"), "bits")
    magnitude = v.bind(bits & v.const(0x7FFF, "int32"), "magnitude")
    shifted = v.bind(magnitude << v.const(_DROPPED, "int32"), "shifted")
    small = v.bits(v.cast(magnitude, "float32") * v.const(_SMALLEST))
    normal = shifted + v.const(_REBIAS << _DROPPED, "int32")
    value = v.select(magnitude < v.const(1 << _HALF.mantissa, "int32"), small, normal)
    special = magnitude >= v.const(_HALF.first_special, "int32")
    value = v.select(special, shifted | v.const(_INFINITY, "int32"), value)
    return v.close(v.from_bits(value | (bits & v.const(0x8000, "int32")) << v.const(16, "int32")))


def encode_half(value: Expr) -> Expr:
    """The float16 nearest to float32 values, ties to even; NaN stays NaN."""
    v = Vectors(value)
    bits = v.bind(v.bits(value), "bits")
    magnitude = v.bind(bits & v.const(0x7FFFFFFF, "int32"), "magnitude")
    shift = v.const(_DROPPED, "int32")
    tie = (magnitude >> shift) & v.const(1, "int32")
    nearest = (magnitude + v.const((1 << _DROPPED - 1) - 1, "int32") + tie) >> shift
    code = v.bind(nearest - v.const(_REBIAS, "int32"), "code")
    beside = v.const(_BESIDE)
    small = v.bits(v.from_bits(magnitude) + beside) - v.bits(beside)
    code = v.select(v.from_bits(magnitude) < v.const(_SMALLEST_NORMAL), small, code)
    infinity = v.const(_HALF.first_special, "int32")
    code = v.select(code > infinity, infinity, code)
    code = v.select(magnitude > v.const(_INFINITY, "int32"), v.const(0x7E00, "int32"), code)
    sign = (bits >> v.const(16, "int32")) & v.const(0x8000, "int32")
    return v.close(v.reinterpret(v.cast(code | sign, "uint16"), "float16"))
