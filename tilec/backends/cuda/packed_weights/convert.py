"""Words of packed weights as pairs of 16-bit floats, and their scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.device import packed
from tilec.backends.cuda.device.moves import LOAD16
from tilec.backends.cuda.warp_roles.emit.build import u32

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.packed_weights.packing import Packing, Place

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
        packing = self.packing
        helper = packed.pair(packing.width, self.kind, packing.zero, place.bits, self._keeps_signs)
        return helper.call(word)

    def scaled(self, pair: Expr, scale: Expr) -> Expr:
        """The products of two pairs, each rounded once."""
        return packed.scaled(self.kind).call(pair, scale)


def twice(address: Expr) -> Expr:
    """The 16-bit element at a shared address, in both halves of a word."""
    return LOAD16.call(address) * u32(0x10001)


def single(address: Expr, kind: str) -> Expr:
    """The element of ``kind`` ("f16", "bf16") at a shared address, as float32."""
    bits = LOAD16.call(address)
    if kind == "bf16":
        return T.reinterpret("float32", T.shift_left(bits, u32(16)))
    return tirx.Cast("float32", T.reinterpret("float16", tirx.Cast("uint16", bits)))
