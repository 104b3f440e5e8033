"""Neighbours of 16 bits that are made together: packed integers and 8-bit floats, times a 16-bit factor.

A pair is one word from where its bits are taken to where it is stored: a mask and a subtraction for integers,
one conversion for 8-bit floats, one product for a factor. It is rounded where each number by itself is
rounded, once or not at all. In other arithmetic two integers of one word become float32 without a shift each,
and two 8-bit floats by one conversion to float16, which holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.bit_fields import BitField, whole_float
from tilec.backends.cuda.device import packed
from tilec.backends.cuda.device.floats import PAIRED, SMALL_PAIRED, half_of, halves, pack
from tilec.backends.cuda.device.moves import BYTES, bits
from tilec.ir.exprs import dtype_of, int_value, same_all, scalar_dtype, substitute
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext

#: `BYTES`'s digits for the low halves of two words, and for two bytes as the low bytes of two halves.
_LOW_HALVES, _TWO_BYTES = 0x5410, 0x4140
#: The bits of a float16 and of a bfloat16 that count ones above 2**10 and 2**7.
_COUNTS = {"float16": 10, "bfloat16": 7}
#: Those of a float32 that count anything from 2**23 on.
_COUNTED_BITS = 23
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)


@dataclass(frozen=True)
class Pairs:
    """Makes pairs of ``dtype`` of a loop's iterations. ``var`` stands at a multiple of ``width`` below
    ``extent``; within ``at(element)`` it stands at an iteration of the vector, of which ``held`` are loaded:
    an element's vector and the number that each iteration has there."""

    ctx: DeviceContext
    dtype: str
    var: Var
    width: int
    extent: int
    at: Callable[[int], AbstractContextManager[None]]
    held: list[tuple[TensorLoad, Var, tuple[int, ...]]]

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
        """A number that is exact in 16 bits, or the product of two, also one of float32 that is rounded."""
        product = value.value if self._rounds(value) else value
        if not isinstance(product, tirx.Mul) or dtype_of(product) not in (self.dtype, "float32"):
            return self._exact(value, first)
        left, right = (self._exact(side, first) for side in (product.a, product.b))
        if left is None or right is None:
            return None
        return packed.scaled(PAIRED[self.dtype]).call(left, right)

    def _exact(self, value: Expr, first: int) -> Expr | None:
        """A pair of numbers that are exact in 16 bits."""
        if isinstance(value, TensorLoad):
            return self._loaded(value, first) if dtype_of(value) == self.dtype else None
        field = whole_float(value, self.ctx.facts.analyzer)
        if field is not None:
            return self._counted(field, first)
        if not isinstance(value, tirx.Cast):
            return None
        if dtype_of(value.value) == self.dtype and dtype_of(value) == "float32":
            return self._exact(value.value, first)
        return self._halves(value.value, first) if self.dtype == "float16" else None

    def _halves(self, value: Expr, first: int) -> Expr | None:
        """Two 8-bit floats as float16; None for anything else."""
        source = dtype_of(value)
        near = self._bytes(value, first) if source in SMALL_PAIRED and isinstance(value, TensorLoad) else None
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
        shifts = [self._simple(field.shift, first + number) for number in range(2)]
        apart = int_value(self.ctx.facts.analyzer.simplify(shifts[1] - shifts[0]))
        exact = max(-field.low, field.high) <= 2 << min(_COUNTS.values())
        if apart is None or field.signed or not exact or not self._is_same(field.load, first):
            return None
        if abs(apart) + field.width > _COUNTED_BITS or abs(apart) < field.width:
            return None
        lower = 0 if apart > 0 else 1
        word = self._right(self._raw(field.load, first), field.shift, first + lower)
        low, high = (packed.field(bit, field.width, field.offset).call(word) for bit in (0, abs(apart)))
        return (low, high) if lower == 0 else (high, low)

    # ---- integers ----

    def _counted(self, field: BitField, first: int) -> Expr | None:
        """Integers as floats: their bits count ones of a power of two, which is taken away."""
        if self.dtype == "bfloat16" and (field.width, field.signed, field.offset) == (8, True, 0):
            word = self._bytes(field.load, first)
            return None if word is None else packed.pair(8, "bf16", 128, (0, 8), True).call(word)
        if field.width > _COUNTS[self.dtype] or max(-field.low, field.high) > 2 << _COUNTS[self.dtype]:
            return None
        word = self._fields(field, first)
        if word is None:
            return None
        return packed.counted(PAIRED[self.dtype], field.width, field.signed, field.offset).call(word)

    def _fields(self, field: BitField, first: int) -> Expr | None:
        """A word with the two numbers at the bottom of its halves, and anything above them."""
        shifts = [self._simple(field.shift, first + number) for number in range(2)]
        apart = int_value(self.ctx.facts.analyzer.simplify(shifts[1] - shifts[0]))
        size = 8 * element_bytes(dtype_of(field.load))
        if self._is_same(field.load, first):
            return self._of_one(field, first, shifts, apart, size)
        together = self._bytes(field.load, first) if size == 8 and apart == 0 else None
        if together is not None:
            spread = BYTES.call(together, _word(0), _word(_TWO_BYTES))
            return self._right(spread, field.shift, first)
        return self._joined(field, first)

    def _of_one(
        self, field: BitField, first: int, shifts: list[Expr], apart: int | None, size: int
    ) -> Expr | None:
        """Two numbers of one element."""
        element = self._raw(field.load, first)
        low, high = (int_value(shift) for shift in shifts)
        if apart == 16:
            return self._right(element, field.shift, first)
        if size == 8 and low is not None and high is not None and high + field.width <= 16:
            return (tirx.shift_right(element, _word(low)) if low else element) + tirx.shift_left(
                element, _word(16 - high)
            )
        return self._joined(field, first)

    def _joined(self, field: BitField, first: int) -> Expr:
        """The numbers of two words, each moved to the bottom."""
        words = [
            self._right(self._raw(field.load, first + number), field.shift, first + number)
            for number in range(2)
        ]
        return BYTES.call(*words, _word(_LOW_HALVES))

    def _right(self, word: Expr, shift: Expr, element: int) -> Expr:
        known = int_value(self._simple(shift, element))
        if known is not None:
            return tirx.shift_right(word, _word(known)) if known else word
        with self.at(element):
            return tirx.shift_right(word, tirx.Cast("uint32", self.ctx.value(shift)))

    # ---- elements ----

    def _raw(self, load: TensorLoad, element: int) -> Expr:
        """The bits of an iteration's element, zeros above."""
        held = self._vector(load)
        if held is None:
            with self.at(element):
                value = self.ctx.raw(load)
        else:
            value = tirx.BufferLoad(held[0], [tirx.const(held[1][element], "int32")])
        size = 8 * element_bytes(dtype_of(load))
        unsigned = f"uint{size}"
        if scalar_dtype(value).startswith(("float", "bfloat")):
            value = tirx.reinterpret(unsigned, value)
        return tirx.Cast("uint32", tirx.Cast(unsigned, value) if dtype_of(value) != unsigned else value)

    def _loaded(self, load: TensorLoad, first: int) -> Expr:
        """Two elements of 16 bits."""
        if self._is_same(load, first):
            return self._raw(load, first) * _word(0x10001)
        near = self._neighbours(load, first, 4)
        words = [self._raw(load, first + number) for number in range(2)]
        return BYTES.call(*words, _word(_LOW_HALVES)) if near is None else near

    def _bytes(self, load: TensorLoad, first: int) -> Expr | None:
        """Two elements of 8 bits that lie side by side."""
        return self._neighbours(load, first, 2)

    def _neighbours(self, load: TensorLoad, first: int, size: int) -> Expr | None:
        """Two elements as a word, where registers hold them side by side from an even place on."""
        held = self._vector(load)
        if held is not None:
            tmp, steps = held
            even = steps[first] % 2 == 0 and steps[first + 1] == steps[first] + 1
            return bits(size).call(tmp.ptr_to([tirx.const(steps[first], "int32")])) if even else None
        fragment = self.ctx.fragments.get(load.source)
        if fragment is None:
            return None
        places = []
        for number in range(2):
            with self.at(first + number):
                places.append(self.ctx.register(load.source, tuple(load.indices)))
        analyzer = self.ctx.facts.analyzer
        near = int_value(analyzer.simplify(places[1] - places[0])) == 1
        found = analyzer.modular_set(places[0])
        even = found.coeff % 2 == 0 and found.base % 2 == 0
        return bits(size).call(fragment.data.ptr_to([places[0]])) if near and even else None

    def _vector(self, load: TensorLoad) -> tuple[Var, tuple[int, ...]] | None:
        """The vector that holds an element, and the number that each iteration has there."""
        own = self._places(load)
        return next(
            ((tmp, steps) for known, tmp, steps in self.held
             if known.source.same_as(load.source) and same_all(self._places(known), own)),
            None,
        )  # fmt: skip

    def _places(self, load: TensorLoad) -> tuple[Expr, ...]:
        return tuple(self.ctx.facts.inline(index) for index in load.indices)

    def _is_same(self, load: TensorLoad, first: int) -> bool:
        """Whether two iterations read one element."""
        return all(
            int_value(self.ctx.facts.analyzer.simplify(
                self._simple(index, first + 1) - self._simple(index, first)
            )) == 0
            for index in load.indices
        )  # fmt: skip

    def _simple(self, expr: Expr, element: int) -> Expr:
        """An expression at an iteration of any vector."""
        width, number = (tirx.const(value, dtype_of(self.var)) for value in (self.width, element))
        place = self._number * width + number
        inlined = self.ctx.facts.inline(expr)
        return self.ctx.facts.analyzer.simplify(substitute(inlined, {self.var: place}))

    @cached_property
    def _number(self) -> Var:
        """The number of any vector."""
        dtype = dtype_of(self.var)
        vector = tirx.Var(f"{self.var.name}_vector", dtype)
        count = tirx.const(self.extent // self.width, dtype)
        self.ctx.facts.analyzer.bind(vector, tvm_ir.Range(tirx.const(0, dtype), count))
        return vector


def _word(value: int) -> Expr:
    return tirx.const(value, "uint32")
