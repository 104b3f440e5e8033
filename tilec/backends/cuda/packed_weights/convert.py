"""Packed integers to pairs of 16-bit floats in a few instructions, exactly.

An integer in the low mantissa bits of a float whose exponent makes those bits count ones is that power of two
plus the integer: 1024 + n for float16, 128 + n for bfloat16 (n below 16), 2**23 + n for float32. A mask or a
byte permutation puts it there, and one subtraction takes the power of two away together with the zero point.
A bfloat16 has room for seven bits; the eighth, a sign, goes into what is subtracted.
Bits 4 to 7 of a float16 count sixteens: there a multiply-add divides as it subtracts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.build import u32

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.packed_weights.packing import Packing, Place

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
    '  asm("{subtract};" : "+r"(pair) : {constants});'
)
_PERMUTED = (
    "pair = __byte_perm(word, {power:#010x}u, {selector:#06x}u);\n"
    '  asm("{subtract};" : "+r"(pair) : {constants});'
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
_SCALED = """
__device__ __forceinline__ unsigned tilec_scaled_{kind}(unsigned pair, unsigned scale) {{
  unsigned product;
  asm("mul.rn.{kind}x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
  return product;
}}
"""
_LOAD = """
__device__ __forceinline__ unsigned tilec_load16(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return value;
}
"""
_SIGN_BITS = 0x80808080
#: The zero point of signed bytes whose sign bits were flipped.
_SIGNED_ZERO = 128


@dataclass(frozen=True)
class Converter:
    """Conversion of one packing into pairs of ``kind``, PTX's "f16" or "bf16"."""

    packing: Packing
    kind: str

    def prepared(self, word: Expr) -> Expr:
        """A packed word as `pair` takes it: signed bytes with their sign bits flipped, where that helps."""
        return T.bitwise_xor(word, u32(_SIGN_BITS)) if self.packing.signed and not self._keeps_signs else word

    @property
    def _keeps_signs(self) -> bool:
        """Whether bytes are converted with their sign bits as they are."""
        return self.kind == "bf16" and self.packing.signed and self.packing.zero == _SIGNED_ZERO

    def pair(self, word: Expr, place: Place) -> Expr:
        """The two weights at ``place`` of a prepared word, the first one in the low half."""
        first, second = place.bits
        code = self._nibbles(first) if self.packing.width == 4 else self._bytes(first // 8, second // 8)
        name = f"tilec_pair{self.packing.width}_{self.kind}_{self.packing.zero}_{first}_{second}"
        return T.cuda.func_call(
            name, word, source_code=_PAIR.format(name=name, code=code), return_type="uint32"
        )

    def scaled(self, pair: Expr, scale: Expr) -> Expr:
        """The products of two pairs, each rounded once."""
        code = _SCALED.format(kind=self.kind)
        return T.cuda.func_call(
            f"tilec_scaled_{self.kind}", pair, scale, source_code=code, return_type="uint32"
        )

    def _nibbles(self, bit: int) -> str:
        zero = self.packing.zero
        if self.kind == "bf16":
            source = f"word >> {bit}" if bit else "word"
            less = _twice(_bfloat16(-(128 + zero)))
            return _MASKED.format(
                mask=0x000F000F, power=0x43004300, source=source,
                subtract="fma.rn.bf16x2 %0, %0, %1, %2",
                constants=f'"r"({_twice(_bfloat16(1)):#010x}), "r"({less:#010x})',
            )  # fmt: skip
        source = "word >> 8" if bit >= 8 else "word"
        if bit % 8 == 0:
            return _MASKED.format(
                mask=0x000F000F, power=0x64006400, source=source,
                subtract="sub.rn.f16x2 %0, %0, %1", constants=f'"r"({_twice(_float16(1024 + zero)):#010x})',
            )  # fmt: skip
        return _MASKED.format(
            mask=0x00F000F0, power=0x64006400, source=source,
            subtract="fma.rn.f16x2 %0, %0, %1, %2",
            constants=f'"r"({_twice(_float16(1 / 16)):#010x}), "r"({_twice(_float16(-(64 + zero))):#010x})',
        )  # fmt: skip

    def _bytes(self, first: int, second: int) -> str:
        zero = self.packing.zero
        if self.kind == "f16":
            return _PERMUTED.format(
                power=0x64646464, selector=0x4040 | second << 8 | first,
                subtract="sub.rn.f16x2 %0, %0, %1", constants=f'"r"({_twice(_float16(1024 + zero)):#010x})',
            )  # fmt: skip
        if self._keeps_signs:
            return _SIGNED.format(selector=0x4040 | second << 8 | first)
        return _WIDE.format(low=0x7440 | first, high=0x7440 | second, power=(1 << 23) + zero, kind=self.kind)


def twice(address: Expr) -> Expr:
    """The 16-bit element at a shared address, in both halves of a word."""
    return _loaded(address) * u32(0x10001)


def single(address: Expr, kind: str) -> Expr:
    """The element of ``kind`` ("f16", "bf16") at a shared address, as float32."""
    bits = _loaded(address)
    if kind == "bf16":
        return T.reinterpret("float32", T.shift_left(bits, u32(16)))
    return tirx.Cast("float32", T.reinterpret("float16", tirx.Cast("uint16", bits)))


def _loaded(address: Expr) -> Expr:
    return T.cuda.func_call("tilec_load16", address, source_code=_LOAD, return_type="uint32")


def _float16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def _bfloat16(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) >> 16


def _twice(half: int) -> int:
    return half << 16 | half
