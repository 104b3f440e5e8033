"""Packed integers to pairs of 16-bit floats in a few instructions, exactly.

An integer in the low mantissa bits of a float whose exponent makes those bits count ones is that power of two
plus the integer: 1024 + n for float16, 128 + n for bfloat16 (n below 16), 2**23 + n for float32. A mask or a
byte permutation puts it there, and one subtraction takes the power of two away together with the zero point.
A bfloat16 has room for seven bits; the eighth, a sign, goes into what is subtracted.
Bits 4 to 7 of a float16 count sixteens: there a multiply-add divides as it subtracts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes

#: One word in, one pair out; ``{...}`` are constants of the case.
_PAIR = """
__device__ __forceinline__ unsigned {name}(unsigned word) {{
  unsigned pair;
  {code}
  return pair;
}}
"""
_MASKED = (
    'asm("lop3.b32 %0, %1, {mask:#010x}, {power:#010x}, 0xEA;" : "=r"(pair) : "r"({source}));\n'
    '  asm("{subtract} %0, %0, {holes};" : "+r"(pair) : {constants});'
)
_PERMUTED = (
    "pair = __byte_perm(word, 0x64646464u, {selector:#06x}u);\n"
    '  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"({less:#010x}));'
)
_WIDE = (
    "float low = __uint_as_float(__byte_perm(word, 0x4B000000u, {low:#06x}u)) - {power}.0f;\n"
    "  float high = __uint_as_float(__byte_perm(word, 0x4B000000u, {high:#06x}u)) - {power}.0f;\n"
    '  asm("cvt.rn.{kind}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));'
)
#: 128 plus the low seven bits, less 128 or, for a negative byte, 256: its sign bit tells these apart.
_SIGNED = (
    "unsigned sign;\n"
    "  pair = __byte_perm(word, 0u, {selector:#06x}u);\n"
    '  asm("lop3.b32 %0, %1, 0x00800080, 0x43004300, 0xEA;" : "=r"(sign) : "r"(pair));\n'
    '  asm("lop3.b32 %0, %0, 0x007f007f, 0x43004300, 0xEA;" : "+r"(pair));\n'
    '  asm("sub.rn.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(sign));'
)
#: (a & b) | c and (a & b) ^ c, as lop3 counts functions.
_AND_OR, _AND_XOR = 0xEA, 0x6A
#: The floats whose low bits count ones: their bits, and what they are.
_COUNTING = {"f16": (0x6400, 1024), "bf16": (0x4300, 128)}


@cache
def pair(width: int, kind: str, zero: int, bits: tuple[int, int], keeps_signs: bool) -> Helper:
    """The two weights of ``width`` bits from these bits on of a word, the first one in the low half, as a
    pair of ``kind``, PTX's "f16" or "bf16". ``keeps_signs``: bytes come with their sign bits as they are."""
    first, second = bits
    name = f"tilec_pair{width}_{kind}_{zero}_{first}_{second}".replace("-", "less_")
    if width == 4:
        code, meaning = _bfloat16_nibbles(first, zero) if kind == "bf16" else _float16_nibbles(first, zero)
    else:
        code, meaning = _bytes(kind, zero, first // 8, second // 8, keeps_signs)
    return Helper(name, _PAIR.format(name=name, code=code), meaning)


def _bfloat16_nibbles(bit: int, zero: int) -> tuple[str, Any]:
    constants = _twice(_bfloat16(1)), _twice(_bfloat16(-(128 + zero)))
    return _masked(0x000F000F, 0x43004300, bit, "fma.rn.bf16x2", constants)


def _float16_nibbles(bit: int, zero: int) -> tuple[str, Any]:
    shift = 8 if bit >= 8 else 0
    if bit % 8 == 0:
        less = _twice(_float16(1024 + zero))
        return _masked(0x000F000F, 0x64006400, shift, "sub.rn.f16x2", (less,))
    constants = _twice(_float16(1 / 16)), _twice(_float16(-(64 + zero)))
    return _masked(0x00F000F0, 0x64006400, shift, "fma.rn.f16x2", constants)


def _masked(mask: int, power: int, shift: int, subtract: str, constants: tuple[int, ...]) -> tuple[str, Any]:
    code = _MASKED.format(
        mask=mask, power=power, source=f"word >> {shift}" if shift else "word", subtract=subtract,
        holes=", ".join(f"%{place + 1}" for place in range(len(constants))),
        constants=", ".join(f'"r"({value:#010x})' for value in constants),
    )  # fmt: skip

    def meaning(lanes: Lanes, word: Any) -> Any:
        return lanes.ptx(subtract, lanes.ptx("lop3.b32", word >> shift, mask, power, _AND_OR), *constants)

    return code, meaning


def _bytes(kind: str, zero: int, first: int, second: int, keeps_signs: bool) -> tuple[str, Any]:
    selector = 0x4040 | second << 8 | first
    if kind == "f16":
        less = _twice(_float16(1024 + zero))
        return _PERMUTED.format(selector=selector, less=less), lambda lanes, word: lanes.ptx(
            "sub.rn.f16x2", lanes.cuda("__byte_perm", word, 0x64646464, selector), less
        )
    if keeps_signs:
        return _SIGNED.format(selector=selector), lambda lanes, word: _signed(lanes, word, selector)
    low, high, power = 0x7440 | first, 0x7440 | second, (1 << 23) + zero

    def meaning(lanes: Lanes, word: Any) -> Any:
        halves = (lanes.cuda("__byte_perm", word, 0x4B000000, chosen) for chosen in (high, low))
        values = (lanes.bits(half, "float32") - np.float32(power) for half in halves)
        return lanes.ptx(f"cvt.rn.{kind}x2.f32", *values)

    return _WIDE.format(low=low, high=high, power=power, kind=kind), meaning


def _signed(lanes: Lanes, word: Any, selector: int) -> Any:
    made = lanes.cuda("__byte_perm", word, 0, selector)
    sign, value = (
        lanes.ptx("lop3.b32", made, mask, 0x43004300, _AND_OR) for mask in (0x00800080, 0x007F007F)
    )
    return lanes.ptx("sub.rn.bf16x2", value, sign)


@cache
def counted(kind: str, width: int, signed: bool, offset: int) -> Helper:
    """The integers of ``width`` bits, plus ``offset``, at the bottom of a word's halves, whatever is above
    them, as a pair of ``kind``. Exact: up to 10 and 7 bits of float16 and bfloat16."""
    power, ones = _COUNTING[kind]
    flipped = 1 << width - 1 if signed else 0
    mask, made = _twice((1 << width) - 1), _twice(power | flipped)
    less = _twice((_float16 if kind == "f16" else _bfloat16)(ones + flipped - offset))
    name = f"tilec_counted_{kind}_{'s' if signed else 'u'}{width}_{offset}".replace("-", "less_")
    code = (
        f'asm("lop3.b32 %0, %1, {mask:#010x}, {made:#010x}, {_AND_XOR:#x};" : "=r"(pair) : "r"(word));\n'
        f'  asm("sub.rn.{kind}x2 %0, %0, %1;" : "+r"(pair) : "r"({less:#010x}));'
    )

    def meaning(lanes: Lanes, word: Any) -> Any:
        return lanes.ptx(f"sub.rn.{kind}x2", lanes.ptx("lop3.b32", word, mask, made, _AND_XOR), less)

    return Helper(name, _PAIR.format(name=name, code=code), meaning)


@cache
def apart(kind: str, width: int, signed: bool) -> Helper:
    """The integers of ``width`` bits at the bottom of a word's halves less those of another, whatever is
    above them, as a pair of ``kind``. Exact: up to 10 and 7 bits of float16 and bfloat16."""
    mask, made = _twice((1 << width) - 1), _twice(_COUNTING[kind][0] | (1 << width - 1 if signed else 0))
    name = f"tilec_apart_{kind}_{'s' if signed else 'u'}{width}"
    lop3 = f'asm("lop3.b32 %0, %0, {mask:#010x}, {made:#010x}, {_AND_XOR:#x};" : "+r"({{word}}));'

    def meaning(lanes: Lanes, word: Any, less: Any) -> Any:
        raised = (lanes.ptx("lop3.b32", each, mask, made, _AND_XOR) for each in (word, less))
        return lanes.ptx(f"sub.rn.{kind}x2", *raised)

    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}(unsigned word, unsigned less) {{
  {lop3.format(word="word")}
  {lop3.format(word="less")}
  asm("sub.rn.{kind}x2 %0, %0, %1;" : "+r"(word) : "r"(less));
  return word;
}}
""", meaning)  # fmt: skip


@cache
def field(bit: int, width: int, offset: int) -> Helper:
    """The integer of ``width`` bits from ``bit`` on of a word, plus ``offset``, as float32. Exact: the bits
    count that power of two in a float of 2**23, up to bit 22."""
    mask, scale, less = (1 << width) - 1 << bit, 1 / (1 << bit), (1 << 23 - bit) - offset
    name = f"tilec_field{width}_{bit}_{offset}".replace("-", "less_")
    return Helper(name, f"""
__device__ __forceinline__ float {name}(unsigned word) {{
  unsigned bits;
  asm("lop3.b32 %0, %1, {mask:#010x}, 0x4B000000, {_AND_OR:#x};" : "=r"(bits) : "r"(word));
  return __uint_as_float(bits) * {scale}f - {less}.0f;
}}
""", lambda lanes, word: lanes.bits(lanes.ptx("lop3.b32", word, mask, 0x4B000000, _AND_OR), "float32")
        * np.float32(scale) - np.float32(less))  # fmt: skip


@cache
def scaled(kind: str) -> Helper:
    """The products of two pairs, each rounded once."""
    return _pairwise(f"tilec_scaled_{kind}", f"mul.rn.{kind}x2", "pair", "scale")


@cache
def summed(kind: str, factors: int) -> Helper:
    """The sums of two pairs, or of the products of two and a third one, each rounded once."""
    if factors > 1:
        return _pairwise(f"tilec_fused_{kind}", f"fma.rn.{kind}x2", "pair", "scale", "more")
    return _pairwise(f"tilec_summed_{kind}", f"add.rn.{kind}x2", "pair", "more")


def _pairwise(name: str, instruction: str, *taken: str) -> Helper:
    """One instruction on pairs."""
    places = ", ".join(f"%{place}" for place in range(len(taken) + 1))
    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}({", ".join(f"unsigned {each}" for each in taken)}) {{
  unsigned made;
  asm("{instruction} {places};" : "=r"(made) : {", ".join(f'"r"({each})' for each in taken)});
  return made;
}}
""", lambda lanes, *pairs: lanes.ptx(instruction, *pairs))  # fmt: skip


def _float16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def _bfloat16(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) >> 16


def _twice(half: int) -> int:
    return half << 16 | half


#: How integers of so many bits at the bottom of a word become the low bits of its bytes: what moves up by so
#: many bits beside what stays, and the bits of both that are kept.
_SPREAD = {1: ((14, 0x00030003), (7, 0x01010101)), 2: ((12, 0x000F000F), (6, 0x03030303)),
           4: ((8, 0x00FF00FF), (4, 0x0F0F0F0F))}  # fmt: skip
_TOPS = 0x80808080


@cache
def spread(width: int, signed: bool, offset: int, halves: bool) -> Helper:
    """Four integers of ``width`` bits, 1, 2 or 4, plus ``offset``, as the bytes of a word: each from -128 to
    255. They are at the bottom of a word, whatever is above them, or two each at the bottom of its
    ``halves``, which are bytes."""
    name = f"tilec_spread_{'s' if signed else 'u'}{width}_{offset}{'_halves' * halves}".replace("-", "less_")
    flipped, start = 1 << width - 1 if signed else 0, 0xFFFFFFFF if halves else (1 << 4 * width) - 1
    more, steps = offset - flipped, _SPREAD[width][halves:]
    code = "" if halves else f"word &= {start:#x}u;\n"
    code += "".join(f"  word = (word | word << {up}) & {kept:#010x}u;\n" for up, kept in steps)
    if flipped:
        code += f"  word ^= {_four(flipped):#010x}u;\n"
    if more < 0:
        code += f"  word = ((word | {_TOPS:#x}u) - {_four(-more):#010x}u) ^ {_TOPS:#x}u;\n"
    elif more:
        code += f"  word += {_four(more):#010x}u;\n"

    def meaning(lanes: Lanes, word: Any) -> Any:
        made = word & start
        for up, kept in steps:
            made = (made | made << up) & kept
        made = made ^ _four(flipped)
        return ((made | _TOPS) - _four(-more)) ^ _TOPS if more < 0 else made + _four(more)

    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}(unsigned word) {{
  {code}  return word;
}}
""", meaning)  # fmt: skip


#: A sum with the products of four signed bytes each.
DP4A = Helper("tilec_dp4a", """
__device__ __forceinline__ int tilec_dp4a(unsigned left, unsigned right, int total) {
  return __dp4a((int)left, (int)right, total);
}
""", lambda lanes, left, right, total: lanes.cuda("__dp4a", left, right, total))  # fmt: skip


def _four(byte: int) -> int:
    return byte * 0x01010101
