"""Neighbours of 8 bits that are made together: integers of 1, 2 or 4 bits side by side, four to a word.

    d[j] = (B[j // 4] >> j % 4 * 2 & 3) - 1    ->    the four bytes of a word, each step once for all of them

One by one each takes a shift, a mask, a difference and its place in a word. On an H200, 4096 x 4096 x 4096,
bytes times signed weights of two bits take 142 us for 195, those of four bits 149 for 194; bytes alone 114.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.bit_fields import BitField, bit_field
from tilec.backends.cuda.device.packed import spread
from tilec.backends.cuda.emit.loops.neighbours import QUAD, Neighbours
from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

_WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class Quads(Neighbours):
    """Makes four bytes at a time of a loop's iterations."""

    def word(self, value: Expr, first: int) -> Expr | None:
        """The values of four iterations from ``first`` on; None where they are no such integers."""
        field = bit_field(value, self.ctx.facts.analyzer)
        if field is None or field.width not in _WIDTHS or field.low < -128 or field.high > 255:
            return None
        shifts = [self.apart(field.shift, first, first + number) for number in range(QUAD)]
        same = [self.is_same(field.load, first + number) for number in range(QUAD - 1)]
        run = [field.width * number for number in range(QUAD)]
        if shifts == run and all(same):
            made = spread(field.width, field.signed, field.offset, False)
            return made.call(self._lowest(field, first))
        if shifts != [*run[:2], *run[:2]] or same != [True, False, True] or not _is_byte(field):
            return None
        low, high = (self._lowest(field, first + number) for number in (0, 2))
        made = spread(field.width, field.signed, field.offset, True)
        return made.call(tirx.bitwise_or(low, tirx.shift_left(high, tirx.const(16, "uint32"))))

    def _lowest(self, field: BitField, iteration: int) -> Expr:
        return self.right(self.raw(field.load, iteration), field.shift, iteration)


def _is_byte(field: BitField) -> bool:
    return element_bytes(dtype_of(field.load)) == 1
