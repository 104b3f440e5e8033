"""64 floats of 8 bits at once as float32, by look-ups among 128 bytes (`vpermi2b` of AVX-512 VBMI).

Every float of 8 bits is a bfloat16, the upper half of its float32. Of 128 magnitudes tables have both bytes;
signs are put beside, bytes become pairs, and pairs the two halves of a word. Bytes change places in front of
that, so that each vector of results has neighbours. Of a vector of 16 floats that takes 2.5 instructions.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.dtypes import FLOAT_FORMATS
from tilec.lowering.math.float8 import FLOAT8_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr

    from tilec.dtypes import FloatFormat
    from tilec.targets import Target

#: Floats that are looked up at once, and those of a vector of float32.
COUNT, _LANES = 64, 16
_MAGNITUDES = 128
#: Bytes of a vector that unpacking keeps together, and how many of them one of its results takes.
_QUARTER, _HALF = 16, 8

_TEXT = """
declare <64 x i8> @{move}(<64 x i8>, <64 x i8>)
declare <64 x i8> @{find}(<64 x i8>, <64 x i8>, <64 x i8>)
define linkonce_odr hidden <64 x float> @{name}(<64 x i8> %bytes) alwaysinline nounwind memory(none) {{
  %code = call <64 x i8> @{move}(<64 x i8> %bytes, <64 x i8> {order})
  %above = call <64 x i8> @{find}(<64 x i8> {high0}, <64 x i8> %code, <64 x i8> {high1})
  %low = call <64 x i8> @{find}(<64 x i8> {low0}, <64 x i8> %code, <64 x i8> {low1})
  %sign = and <64 x i8> %code, splat (i8 -128)
  %high = or <64 x i8> %above, %sign
  %p = shufflevector <64 x i8> %low, <64 x i8> %high, <64 x i32> {first}
  %q = shufflevector <64 x i8> %low, <64 x i8> %high, <64 x i32> {second}
  %pairs0 = bitcast <64 x i8> %p to <16 x i32>
  %pairs1 = bitcast <64 x i8> %q to <16 x i32>
  %a = shl <16 x i32> %pairs0, splat (i32 16)
  %b = and <16 x i32> %pairs0, splat (i32 -65536)
  %c = shl <16 x i32> %pairs1, splat (i32 16)
  %d = and <16 x i32> %pairs1, splat (i32 -65536)
  %ab = shufflevector <16 x i32> %a, <16 x i32> %b, <32 x i32> {two}
  %cd = shufflevector <16 x i32> %c, <16 x i32> %d, <32 x i32> {two}
  %all = shufflevector <32 x i32> %ab, <32 x i32> %cd, <64 x i32> {four}
  %floats = bitcast <64 x i32> %all to <64 x float>
  ret <64 x float> %floats
}}
"""


def at_once(target: Target, dtype: str) -> int:
    """How many elements of a type are looked up together; 1 where none are. AMD's processors from Zen 4 on
    have the instruction."""
    return COUNT if dtype in FLOAT8_TYPES and target.has("zen4") else 1


def look_up(raw: Expr, dtype: str, functions: dict[str, str]) -> Expr:
    """The float32 values of 64 bytes (uint8); exact. NaN stays NaN. The function goes into ``functions``: its
    text by its name."""
    name = f"tilec_{dtype}_looked_up"
    functions.setdefault(name, _text(name, dtype))
    return tirx.call_extern(f"float32x{COUNT}", name, raw)


@cache
def _text(name: str, dtype: str) -> str:
    low, high = zip(*upper_halves(dtype), strict=True)
    places = [COUNT * (at % 2) + _QUARTER * (at // _QUARTER) + at % _QUARTER // 2 for at in range(COUNT)]
    return _TEXT.format(
        name=name,
        move="llvm.x86.avx512.permvar.qi.512",
        find="llvm.x86.avx512.vpermi2var.qi.512",
        order=_vector("i8", _order()),
        low0=_vector("i8", low[:COUNT]),
        low1=_vector("i8", low[COUNT:]),
        high0=_vector("i8", high[:COUNT]),
        high1=_vector("i8", high[COUNT:]),
        first=_vector("i32", places),
        second=_vector("i32", (place + _HALF for place in places)),
        two=_vector("i32", range(2 * _LANES)),
        four=_vector("i32", range(4 * _LANES)),
    )


def upper_halves(dtype: str) -> list[tuple[int, int]]:
    """Both bytes, the lower one first, of the bfloat16 number that each magnitude of a type is."""
    return [_upper_half(FLOAT_FORMATS[dtype], code) for code in range(_MAGNITUDES)]


def _order() -> list[int]:
    """Which byte stands at each place in front of unpacking: byte ``16 * q + p`` becomes half ``p % 2`` of
    word ``4 * q + p // 2 % 4`` of the first two vectors of results, or, from 8 on, of the other two."""
    places = (divmod(place, _QUARTER) for place in range(COUNT))
    return [
        2 * _LANES * (p // _HALF) + _LANES * (p % 2) + _QUARTER // 4 * q + p % _HALF // 2 for q, p in places
    ]


def _upper_half(form: FloatFormat, code: int) -> tuple[int, int]:
    """Both bytes of the bfloat16 number that a magnitude is, the lower one first."""
    exponent, mantissa = divmod(code, 1 << form.mantissa)
    fraction = mantissa / (1 << form.mantissa)
    value = (1 + fraction if exponent else fraction) * 2.0 ** (max(exponent, 1) - form.bias)
    if code >= form.first_special:
        value = float("inf" if form.has_infinity and code == form.first_special else "nan")
    low, high = struct.pack("<f", value)[2:]
    return low, high


def _vector(kind: str, numbers: Iterable[int]) -> str:
    """A vector of constants as LLVM spells it."""
    return f"<{', '.join(f'{kind} {number}' for number in numbers)}>"
