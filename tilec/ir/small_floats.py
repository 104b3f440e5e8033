"""Numbers of float4_e2m1fn and float8_e8m0fnu as expressions on the bytes that memory holds of them.

Values by the OCP Microscaling Formats (MX) Specification 1.0, sections 5.3.3 (E2M1) and 5.4.1 (E8M0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.stmt import Region

#: What elements of products with scales, and their scales, are, by the dtype that memory has.
_NUMBERS = {"uint8": "float4_e2m1fn"}
_SCALES = {"uint8": "float8_e8m0fnu"}


def number_type(region: Region) -> str:
    """The dtype of the numbers in an operand of a `tilec.ir.nodes.ScaledGemm`."""
    held = str(region.buffer.dtype)
    return _NUMBERS.get(held, held)


def scale_type(region: Region) -> str:
    """The dtype of the scales of one."""
    held = str(region.buffer.dtype)
    return _SCALES.get(held, held)


def numbers_of(region: Region) -> int:
    """Numbers in each element of such an operand, side by side."""
    return 2 if str(region.buffer.dtype) in _NUMBERS else 1


def float4(bits: Expr) -> Expr:
    """The float16 of four bits in a byte: sign, two of exponent, one of mantissa. Twice the magnitude is an
    integer: the mantissa for exponent 0, else the mantissa with a leading one, shifted."""
    mantissa, exponent = tirx.bitwise_and(bits, _byte(1)), tirx.bitwise_and(bits >> _byte(1), _byte(3))
    normal = tirx.bitwise_or(mantissa, _byte(2)) << tirx.max(exponent, _byte(1)) - _byte(1)
    twice = tirx.Select(tirx.EQ(exponent, _byte(0)), mantissa, normal)
    halves = [tirx.const(value, "float16") for value in (-0.5, 0.5)]
    return tirx.Cast("float16", twice) * tirx.if_then_else(bits >= _byte(8), *halves)


def power(byte: Expr) -> Expr:
    """The float32 2^(byte - 127) of a byte, NaN of 255."""
    word = tirx.Cast("uint32", byte)
    bits = tirx.Select(tirx.EQ(word, _word(0)), _word(0x00400000), word << _word(23))
    bits = tirx.Select(tirx.EQ(word, _word(255)), _word(0x7FC00000), bits)
    return tirx.reinterpret("float32", bits)


def number(region: Region, indices: tuple[Expr, ...]) -> Expr:
    """The number at ``indices`` of a region's buffer, the last of which counts numbers, as float16 or as the
    buffer has it."""
    if numbers_of(region) == 1:
        return tirx.BufferLoad(region.buffer, list(indices))
    *lead, last = indices
    two = tirx.const(2, "int32")
    byte = tirx.BufferLoad(region.buffer, [*lead, tirx.floordiv(last, two)])
    shift = tirx.Cast("uint8", tirx.floormod(last, two)) * _byte(4)
    return float4(tirx.bitwise_and(byte >> shift, _byte(15)))


def scale(region: Region, indices: tuple[Expr, ...]) -> Expr:
    """The scale at ``indices`` of a region's buffer, as float32."""
    held = tirx.BufferLoad(region.buffer, list(indices))
    return power(held) if scale_type(region) != str(held.ty.dtype) else tirx.Cast("float32", held)


def _byte(value: int) -> Expr:
    return tirx.const(value, "uint8")


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")
