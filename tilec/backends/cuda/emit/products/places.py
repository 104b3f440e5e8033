"""Words of the places of a sparse operand's values, as lanes hold them for mma.sp and wgmma.sp.

Both draw them alike for 16 rows, those of a warp (PTX ISA, "Matrix fragments for multiply-accumulate
operation with sparse matrix A", "Sparse WGMMA metadata layout"). For row group g = lane // 4 and t = lane % 4
of 16-bit types a lane holds 16 columns, row g in the lower half, row g + 8 in the upper one; two lanes hold
what an instruction wants, t = 0 and 1 or, as its selector says, 2 and 3. Of 8-bit types all four hold 32
columns, those of t = 0 and 2 row g, of 1 and 3 row g + 8, from 32 (t // 2) on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.products.mma import ROWS
from tilec.backends.cuda.emit.products.operands import bits, element_in
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import chunk
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Region

#: Columns of a lane of 16-bit types and of 8-bit ones, with a bit each in a row of places.
_WIDE, _NARROW = 16, 32
#: Lanes that hold the places of one instruction of 16-bit types, and of two.
ONE, TWO = 2, 4


@dataclass(frozen=True, eq=False)
class Places:
    """The places of values of ``size`` bytes: ``region`` has a row of bits for each row of the operand, or
    with ``turned`` a column of integers."""

    region: Region
    turned: bool
    size: int
    ctx: DeviceContext

    def word(self, first: Expr, column: int) -> Expr:
        """The word of a lane, for the 16 rows from ``first`` on and an instruction's columns from ``column``
        on."""
        if self.size == 1:
            return self._bits(*self._place(first, column, ONE), _NARROW)
        lower, upper = self.halves(first, column, ONE)
        return tirx.bitwise_or(lower, tirx.shift_left(upper, tirx.const(_WIDE, "uint32")))

    def halves(self, first: Expr, column: int, lanes: int) -> tuple[Expr, Expr]:
        """The lower and the upper half of the word, each by loads of its own; of 16-bit types with ``lanes``
        TWO also for the next instruction's columns."""
        row, start = self._place(first, column, lanes)
        beside = (row + _number(ROWS // 2), start) if self.size == 2 else (row, start + _number(_WIDE))
        return self._bits(row, start, _WIDE), self._bits(*beside, _WIDE)

    def _place(self, first: Expr, column: int, lanes: int) -> tuple[Expr, Expr]:
        """The first row and column of a lane."""
        assert self.ctx.lane is not None
        group = tirx.truncdiv(self.ctx.lane, _number(4))
        within = tirx.truncmod(self.ctx.lane, _number(4))
        row = first + group
        if self.size == 2:
            return row, _number(column) + tirx.truncmod(within, _number(lanes)) * _number(_WIDE)
        row = row + tirx.truncmod(within, _number(2)) * _number(ROWS // 2)
        return row, _number(column) + tirx.truncdiv(within, _number(2)) * _number(_NARROW)

    def _bits(self, row: Expr, column: Expr, count: int) -> Expr:
        """``count`` bits of a row, those of as many columns from ``column`` on, a multiple of that."""
        width = 8 * element_bytes(str(self.region.buffer.dtype))
        at = tirx.truncdiv(column, _number(width))
        if width > count:
            shift = tirx.Cast("uint32", tirx.truncmod(column, _number(width)))
            found = tirx.shift_right(self._read(row, at, width // 8), shift)
            return tirx.bitwise_and(found, tirx.const((1 << count) - 1, "uint32"))
        if self._are_neighbours(count // width):
            return self._read(row, at, count // 8)
        word = self._read(row, at, width // 8)
        for part in range(1, count // width):
            upper = self._read(row, at + _number(part), width // 8)
            word = tirx.bitwise_or(word, tirx.shift_left(upper, tirx.const(part * width, "uint32")))
        return word

    def _are_neighbours(self, count: int) -> bool:
        """Whether so many integers of a row, from a multiple of that on, lie side by side."""
        layout = self.ctx.storage(self.region.buffer).layout
        if self.turned or layout is None or chunk(layout) % count:
            return False
        return divides(count, self.region.start[-1], self.ctx.facts)

    def _read(self, row: Expr, column: Expr, size: int) -> Expr:
        """So many bytes from an integer on; of rows beyond the tile, whose results are ignored, of the last
        one."""
        rows = int_value(self.region.extent[-1 if self.turned else -2]) or 1
        if rows % ROWS:
            row = tirx.min(row, tirx.const(rows - 1, "int32"))
        data, place = element_in(self.region, *((column, row) if self.turned else (row, column)), self.ctx)
        return bits(data.ptr_to([place]), size)


def _number(value: int) -> Expr:
    return tirx.const(value, "int32")
