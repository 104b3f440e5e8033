"""Numbers of dtypes that nothing computes with, as the bits that memory has of them: int4, uint4,
float4_e2m1fn and float8_e8m0fnu."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

from tilec.language.values.conversions import tirx_function
from tilec.language.values.operands import cast_value
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value

_BYTE, _WORD = make_dtype("uint8"), make_dtype("uint32")
#: The magnitudes of float4_e2m1fn.
FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SMALL_NUMBERS = ("int4", "uint4", "float4_e2m1fn", "float8_e8m0fnu")


def rounded(value: Any, kind: make_dtype) -> Value:
    """``value`` as one of `SMALL_NUMBERS`, in the dtype that it is computed with as."""
    return decoded(encoded(value, kind), kind)


def decoded(bits: Value, kind: make_dtype) -> Value:
    """The number that the bits in a byte are: int8, uint8, float16, or float32 for powers of two."""
    from tilec.ir.small_floats import float4, power

    if kind == "uint4":
        return bits
    if kind == "int4":
        signed = cast_value(bits, make_dtype("int8"))
        eight = cast_value(8, make_dtype("int8"))
        return apply("-", apply("^", signed, eight), eight)  # type: ignore[no-any-return]
    return Value((power if kind == "float8_e8m0fnu" else float4)(bits.expr))


def encoded(value: Any, kind: make_dtype) -> Value:
    """The bits of the nearest number, in a byte; of integers the lower four."""
    if not kind.row.is_float:
        return apply("&", cast_value(cast_value(value, make_dtype("int32")), _BYTE), _byte(15))  # type: ignore[no-any-return]
    single = cast_value(value, make_dtype("float32"))
    return _nearest_power(single) if kind == "float8_e8m0fnu" else _nearest_float4(single)


def _nearest_power(value: Value) -> Value:
    """The nearest power of two, the larger one in the middle; NaN for what is negative or no number."""
    bits = _word_of(value)
    nearest = apply(">>", apply("+", bits, cast_value(0x400000, _WORD)), cast_value(23, _WORD))
    byte = apply("min", nearest, cast_value(254, _WORD))
    number = apply("<=", bits, cast_value(0x7F800000, _WORD))
    negative_zero = apply("==", bits, cast_value(0x80000000, _WORD))
    return _byte(_chosen(negative_zero, 0, _chosen(number, byte, cast_value(255, _WORD))))


def _nearest_float4(value: Value) -> Value:
    """The nearest float4_e2m1fn, ties to an even code, the largest for what is larger and for no number: PTX
    ISA, cvt.rn.satfinite.e2m1x2."""
    bits = _word_of(value)
    magnitude = apply("&", bits, cast_value(0x7FFFFFFF, _WORD))  # in the order of the numbers
    code: Any = _byte(0)
    for place, (low, high) in enumerate(itertools.pairwise(FLOAT4)):
        middle = cast_value(_bits_of((low + high) / 2), _WORD)
        code = apply("+", code, _byte(apply(">=" if place % 2 else ">", magnitude, middle)))
    infinite = cast_value(_bits_of(math.inf), _WORD)
    sign = apply("&", apply("<=", magnitude, infinite), apply("!=", apply(">>", bits, 31), 0))
    return apply("|", code, apply("<<", _byte(sign), _byte(3)))  # type: ignore[no-any-return]


def _bits_of(number: float) -> int:
    """A float32 as an integer."""
    return int(struct.unpack("<I", struct.pack("<f", number))[0])


def _chosen(cond: Any, yes: Any, no: Any) -> Value:
    left = cast_value(yes, _WORD)
    return Value(tirx_function("Select")(cond.expr, left.expr, no.expr))


def _word_of(value: Value) -> Value:
    return Value(tirx_function("reinterpret")("uint32", value.expr))


def _byte(value: Any) -> Value:
    return cast_value(value, _BYTE)
