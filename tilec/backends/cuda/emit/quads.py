"""Neighbours of 8 bits that are made together: integers of 1, 2 or 4 bits side by side, four to a word.

    d[j] = (B[j // 4] >> j % 4 * 2 & 3) - 1    ->    the four bytes of a word, each step once for all of them

One by one each takes a shift, a mask, a difference and its place in a word. On an H200, 4096 x 4096 x 4096,
bytes times weights of two bits take 141 us for 163, those of four bits with signs 162 for 255; bytes alone
take 115.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.bit_fields import BitField, bit_field
from tilec.backends.cuda.device.packed import spread
from tilec.backends.cuda.emit.neighbours import Neighbours
from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Elements of a word.
QUAD = 4
#: The types of 8 bits that are made so.
BYTES = ("int8", "uint8")
_WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class Quads(Neighbours):
    """Makes four bytes at a time of a loop's iterations."""

    def word(self, value: Expr, first: int) -> Expr | None:
        """The values of four iterations from ``first`` on; None where they are no such integers."""
        field = bit_field(value, self.ctx.facts.analyzer)
        if field is None or field.width not in _WIDTHS:
            return None
        run = self._run(field, first) if field.low >= -128 and field.high <= 255 else None
        return None if run is None else spread(field.width, field.signed, field.offset).call(run)

    def _run(self, field: BitField, first: int) -> Expr | None:
        """A word whose lowest bits are those of four iterations, of one element or of two; None where they do
        not lie side by side."""
        shifts = [self.apart(field.shift, first, first + number) for number in range(QUAD)]
        same = [self.is_same(field.load, first + number) for number in range(QUAD - 1)]
        if shifts == [field.width * number for number in range(QUAD)] and all(same):
            return self._lowest(field, first)
        if shifts != [0, field.width, 0, field.width] or same != [True, False, True]:
            return None
        size = element_bytes(dtype_of(field.load))
        together = self.together(field.load, first, first + 2, 2) if size == 1 and field.width == 4 else None
        if together is not None:
            return together
        low, high = (self._lowest(field, first + number) for number in (0, 2))
        bits = 2 * field.width
        low = tirx.bitwise_and(low, tirx.const((1 << bits) - 1, "uint32"))
        return tirx.bitwise_or(low, tirx.shift_left(high, tirx.const(bits, "uint32")))

    def _lowest(self, field: BitField, iteration: int) -> Expr:
        return self.right(self.raw(field.load, iteration), field.shift, iteration)
