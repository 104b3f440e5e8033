"""Neighbours of 16 bits that are made together: packed integers and 8-bit floats, times a 16-bit factor.

A pair is one word from where its bits are taken to where it is stored: a mask and a subtraction for integers,
one conversion for 8-bit floats, one product for a factor. It is rounded where each number by itself is
rounded, once or not at all. In other arithmetic two integers of one word become float32 without a shift each,
and two 8-bit floats by one conversion to float16, which holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.bit_fields import BitField, bit_field, whole_float
from tilec.backends.cuda.device import packed
from tilec.backends.cuda.device.floats import PAIRED, SMALL_PAIRED, half_of, halves, pack
from tilec.backends.cuda.device.moves import BYTES
from tilec.backends.cuda.emit.loops.neighbours import QUAD, Neighbours
from tilec.ir.analysis.numbers.ranges import SHORT, limits
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

#: `BYTES`'s digits for the low halves of two words, and for zeros above two bytes.
_LOW_HALVES, _ZEROS = 0x5410, 0x4040
#: Bits of a byte.
_BYTE = 8
#: The bits of a float16 and of a bfloat16 that count ones above 2**10 and 2**7.
_COUNTS = {"float16": 10, "bfloat16": 7}
#: Those of a float32 that count anything from 2**23 on.
_COUNTED_BITS = 23
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)


@dataclass(frozen=True)
class Pairs(Neighbours):
    """Makes pairs of ``dtype`` of a loop's iterations."""

    dtype: str

    def word(self, value: Expr, first: int) -> Expr | None:
        """The values of iterations ``first`` and ``first + 1``; None where they are no such pair."""
        if isinstance(value, TensorLoad):
            return None
        made = self._rounded_once(value, first)
        if made is not None:
            return made
        found = self._floats(value.value if self._rounds(value) else value, first)
        return None if found is None else pack(self.dtype).call(*found)

    def _rounds(self, value: Expr) -> bool:
        """Whether a value is a float32 to be rounded."""
        is_cast = isinstance(value, tirx.Cast) and dtype_of(value) == self.dtype
        return is_cast and dtype_of(value.value) == "float32"

    def _rounded_once(self, value: Expr, first: int) -> Expr | None:
        """A number that is exact in 16 bits, or what one instruction makes of such, also what is float32 and
        rounded: a product, a sum, or a product and a sum."""
        made = value.value if self._rounds(value) else value
        is_made = isinstance(made, _ARITHMETIC) and dtype_of(made) in (self.dtype, "float32")
        exact = self._exact(value, first)
        if exact is not None or not is_made:
            return exact
        return self._product(made, first) if isinstance(made, tirx.Mul) else self._sum(made, first)

    def _product(self, value: tirx.Mul, first: int) -> Expr | None:
        """The product of two exact numbers."""
        sides = self._sides((value.a, value.b), first)
        return None if sides is None else packed.scaled(PAIRED[self.dtype]).call(*sides)

    def _sum(self, value: tirx.Add | tirx.Sub, first: int) -> Expr | None:
        """An exact number, or the product of two, with another one added to it or taken from it."""
        product, other = (value.a, value.b) if isinstance(value.a, tirx.Mul) else (value.b, value.a)
        factors = (product.a, product.b) if isinstance(product, tirx.Mul) else (product,)
        sides = self._sides((*factors, other), first)
        if sides is None:
            return None
        if isinstance(value, tirx.Sub):
            less = 0 if product.same_as(value.b) else -1
            sides[less] = _turned(sides[less])
        return packed.summed(PAIRED[self.dtype], len(factors)).call(*sides)

    def _sides(self, values: Sequence[Expr], first: int) -> list[Expr] | None:
        """Pairs of exact numbers; None where one is none."""
        found = [self._exact(value, first) for value in values]
        return None if None in found else found

    def _exact(self, value: Expr, first: int) -> Expr | None:
        """A pair of numbers that are exact in 16 bits."""
        if isinstance(value, TensorLoad):
            return self._loaded(value, first) if dtype_of(value) == self.dtype else None
        field = whole_float(value, self.ctx.facts.analyzer)
        if field is not None:
            return self._counted(field, first)
        apart = self._difference(value, first)
        if apart is not None or not isinstance(value, tirx.Cast):
            return apart
        if dtype_of(value.value) == self.dtype and dtype_of(value) == "float32":
            return self._exact(value.value, first)
        return self._halves(value.value, first) if self.dtype == "float16" else None

    def _halves(self, value: Expr, first: int) -> Expr | None:
        """Two 8-bit floats as float16; None for anything else."""
        source = dtype_of(value)
        near = self.run(value, first, 2) if source in SMALL_PAIRED and isinstance(value, TensorLoad) else None
        return None if near is None else halves(source).call(tirx.Cast("uint16", near))

    # ---- float32 ----

    def _floats(self, value: Expr, first: int) -> tuple[Expr, Expr] | None:
        """Two numbers as float32; None where there are no integers of one word, nor 8-bit floats, in them."""
        field = whole_float(value, self.ctx.facts.analyzer)
        if field is not None:
            return self._of_one_word(field, first)
        if isinstance(value, tirx.Cast) and dtype_of(value) in (*PAIRED, "float32"):
            if dtype_of(value) == "float32" and dtype_of(value.value) in PAIRED:
                return self._floats(value.value, first)
            pair = self._halves(value.value, first)
            return None if pair is None else (half_of(0).call(pair), half_of(1).call(pair))
        if not isinstance(value, _ARITHMETIC) or dtype_of(value) not in (*PAIRED, "float32"):
            return None
        sides = [self._floats(side, first) for side in (value.a, value.b)]
        if sides == [None, None]:
            return None
        a, b = (
            made or self._apart(side, first) for made, side in zip(sides, (value.a, value.b), strict=True)
        )
        return type(value)(a[0], b[0]), type(value)(a[1], b[1])

    def _apart(self, value: Expr, first: int) -> tuple[Expr, Expr]:
        """Two numbers, each by itself."""
        made = []
        for number in range(2):
            with self.at(first + number):
                made.append(self.ctx.value(value))
        return made[0], made[1]

    def _of_one_word(self, field: BitField, first: int) -> tuple[Expr, Expr] | None:
        """Two integers of an element that are so near each other that a float32 counts both. Words of 4 bits
        with zero points and scales, beside a plain product on an H200: 0.86, 0.89 so."""
        apart = self.apart(field.shift, first, first + 1)
        exact = max(-field.low, field.high) <= 2 << min(_COUNTS.values())
        if apart is None or field.signed or not exact or not self.is_same(field.load, first):
            return None
        if abs(apart) + field.width > _COUNTED_BITS or abs(apart) < field.width:
            return None
        lower = 0 if apart > 0 else 1
        word = self.right(self.raw(field.load, first), field.shift, first + lower)
        low, high = (packed.field(bit, field.width, field.offset).call(word) for bit in (0, abs(apart)))
        return (low, high) if lower == 0 else (high, low)

    # ---- integers ----

    def _counted(self, field: BitField, first: int) -> Expr | None:
        """Integers as floats: their bits count ones of a power of two, which is taken away."""
        if max(-field.low, field.high) > 2 << _COUNTS[self.dtype]:
            return None
        whole = self._of_bytes(field, first) if field.width == _BYTE else None
        if whole is not None or field.width > _COUNTS[self.dtype]:
            return whole
        word = self._fields(field, first)
        if word is None:
            return None
        return packed.counted(PAIRED[self.dtype], field.width, field.signed, field.offset).call(word)

    def _of_bytes(self, field: BitField, first: int) -> Expr | None:
        """Integers of 8 bits as floats: one permutation of a word puts two of them where a float counts ones,
        and one exclusive or turns the signs of four (of two alone, a mask does so with it)."""
        shifts = [int_value(self.simple(field.shift, first + number)) for number in range(2)]
        low, high = (-1 if shift is None or shift % _BYTE else shift // _BYTE for shift in shifts)
        if min(low, high) < 0 or max(low, high) >= QUAD:
            return None
        keeps_signs = self.dtype == "bfloat16" and field.signed and not field.offset
        turns = field.signed and not keeps_signs
        if self.is_same(field.load, first):
            word = self.raw(field.load, first)
        else:
            near = self._bytes(field.load, first, QUAD if turns and self.dtype == "float16" else 2)
            if near is None:
                return None
            word, low = near
            high = low + 1
        if turns:
            word = tirx.bitwise_xor(word, _word(0x80808080))
        zero, bits = (128 if field.signed else 0) - field.offset, (_BYTE * low, _BYTE * high)
        return packed.pair(_BYTE, PAIRED[self.dtype], zero, bits, keeps_signs).call(word)

    def _difference(self, value: Expr, first: int) -> Expr | None:
        """What integers are beyond others of as many bits, as zero points are: the power of two above both
        goes with the subtraction."""
        left, right = self._subtracted(value)
        if left is None or right is None or (left.width, left.signed) != (right.width, right.signed):
            return None
        if left.offset != right.offset or left.width > _COUNTS[self.dtype]:
            return None
        words = [self._fields(field, first) for field in (left, right)]
        if None in words:
            return None
        return packed.apart(PAIRED[self.dtype], left.width, left.signed).call(*words)

    def _subtracted(self, value: Expr) -> tuple[BitField | None, BitField | None]:
        """The two integers whose difference a number is."""
        analyzer = self.ctx.facts.analyzer
        if isinstance(value, tirx.Sub):
            return whole_float(value.a, analyzer), whole_float(value.b, analyzer)
        inner = value.value if isinstance(value, tirx.Cast) else None
        if not isinstance(inner, tirx.Sub) or dtype_of(inner) not in SHORT:
            return None, None
        left, right = bit_field(inner.a, analyzer), bit_field(inner.b, analyzer)
        if left is None or right is None:
            return None, None
        low, high = limits(dtype_of(inner))
        fits = low <= left.low - right.high and left.high - right.low <= high
        return (left, right) if fits else (None, None)

    def _fields(self, field: BitField, first: int) -> Expr | None:
        """A word with the two numbers at the bottom of its halves, and anything above them."""
        shifts = [self.simple(field.shift, first + number) for number in range(2)]
        apart = self.apart(field.shift, first, first + 1)
        size = _BYTE * element_bytes(dtype_of(field.load))
        if self.is_same(field.load, first):
            return self._of_one(field, first, shifts, apart, size)
        near = self._bytes(field.load, first) if apart == 0 else None
        if near is not None:
            word, low = near
            spread = BYTES.call(word, _word(0), _word(_ZEROS | low + 1 << 8 | low))
            return self.right(spread, field.shift, first)
        return self._joined(field, first)

    def _of_one(
        self, field: BitField, first: int, shifts: list[Expr], apart: int | None, size: int
    ) -> Expr | None:
        """Two numbers of one element."""
        element = self.raw(field.load, first)
        low, high = (int_value(shift) for shift in shifts)
        if apart == 16:
            return self.right(element, field.shift, first)
        if size == _BYTE and low is not None and high is not None and high + field.width <= 16:
            return (tirx.shift_right(element, _word(low)) if low else element) + tirx.shift_left(
                element, _word(16 - high)
            )
        return self._joined(field, first)

    def _joined(self, field: BitField, first: int) -> Expr:
        """The numbers of two words, each moved to the bottom."""
        words = [
            self.right(self.raw(field.load, first + number), field.shift, first + number)
            for number in range(2)
        ]
        return BYTES.call(*words, _word(_LOW_HALVES))

    # ---- elements ----

    def _loaded(self, load: TensorLoad, first: int) -> Expr:
        """Two elements of 16 bits."""
        if self.is_same(load, first):
            return self.raw(load, first) * _word(0x10001)
        near = self.run(load, first, 2)
        words = [self.raw(load, first + number) for number in range(2)]
        return BYTES.call(*words, _word(_LOW_HALVES)) if near is None else near

    def _bytes(self, load: TensorLoad, first: int, least: int = 2) -> tuple[Expr, int] | None:
        """A word of at least so many elements of 8 bits, in which two lie side by side, and which of its
        bytes the first one is."""
        if element_bytes(dtype_of(load)) != 1:
            return None
        for count in (QUAD, 2):
            word = self.run(load, first - first % count, count) if count >= least else None
            if word is not None:
                return word, first % count
        return None


def _turned(pair: Expr) -> Expr:
    """A pair with its signs turned."""
    return tirx.bitwise_xor(pair, _word(0x80008000))


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")
