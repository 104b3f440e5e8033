"""SparseWarpGemm as mma.sp: the values of A as a dense operand, two steps of B, and the values' places.

A lane's word of places (PTX ISA, "Matrix fragments for multiply-accumulate operation with sparse matrix A"),
for row group g = lane // 4 and t = lane % 4, with the lanes that count chosen by selector 0: of 16-bit types
t = 0 and 1 hold 16 columns each from 16 t on, row g in the lower half, row g + 8 in the upper one; of 8-bit
types all four hold 32 columns, those of t = 0 and 2 row g, of 1 and 3 row g + 8, from 32 (t // 2) on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.mma import ROWS, STEP_BYTES, sparse_instruction_name
from tilec.backends.cuda.device.matrices import sparse_mma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.operands import Operand, TiledOperand, bits
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Product, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import SparseWarpGemm
from tilec.ir.exprs import int_value
from tilec.lowering.emission.statements import sequence, store_at
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region


@emit.register(SparseWarpGemm)
def _emit_sparse(stmt: SparseWarpGemm, ctx: DeviceContext) -> tirx.Stmt:
    return SparseProduct(stmt, ctx).emit()


class SparseProduct(Product):
    """The instructions of one warp."""

    def operands(self, a: Region, b: Region) -> Operands:
        """Those of a product, with two steps of B for each of A, and the places."""
        left, right = self.dense_operands(a, b, 2 * self.tile.steps)
        stmt = self.stmt
        assert isinstance(stmt, SparseWarpGemm)
        rows = self.tile.tiles[0]
        first = self.row * tirx.const(rows * ROWS, "int32")
        element = element_bytes(self.types[0])
        return left, _Pairs(right), _Places(stmt.e, stmt.trans_e, rows, first, element, self.ctx)

    def words(self) -> tuple[int, ...]:
        """Four of each tile of A, four of each of B, one of places."""
        rows, columns = self.tile.tiles
        return rows * 4, columns * 4, rows

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """One instruction on the operands from ``places`` on."""
        number = partial(tirx.const, dtype="int32")
        a, b, e = buffers
        instruction = sparse_instruction_name(self.tile.instruction, self.types)
        place = self.base + (i * number(self.tile.tiles[1]) + j) * number(4)
        return call(
            sparse_mma(instruction, self.types[2]).call(
                self.accumulator.ptr_to([place]),
                a.ptr_to([i * number(4) + number(places[0])]),
                b.ptr_to([j * number(4) + number(places[1])]),
                e[i + number(places[2])],
            )
        )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Two steps of an operand as one: the words of both, tile by tile."""

    inner: Operand

    @property
    def words(self) -> int:
        """As `Operand.words`."""
        return 2 * self.inner.words

    def begin(self) -> list[tirx.Stmt]:
        """Those of the operand."""
        return self.inner.begin()

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """Both steps beside each other, then the words of each tile brought together."""
        name, count = f"{to.name}_halves", self.inner.words
        halves = tirx.decl_buffer((2 * count,), "uint32", name=name, scope="local")
        loads = [part for half in (0, 1) for part in self.inner.load(halves, half * count, 2 * step + half)]
        moves = [
            tirx.BufferStore(
                to,
                tirx.BufferLoad(halves, [tirx.const(half * count + tile * 2 + word, "int32")]),
                [tirx.const(place + tile * 4 + half * 2 + word, "int32")],
            )
            for tile in range(count // 2)
            for half in (0, 1)
            for word in (0, 1)
        ]
        return [sequence([tirx.AllocBuffer(halves), *loads, *moves])]


@dataclass(frozen=True, eq=False)
class _Places(TiledOperand):
    """The places of a sparse operand's values: a word for every 16 rows and step, from shared memory.

    ``turned``: stored with the rows of A along its last axis; ``size``: bytes of an element of A."""

    region: Region
    turned: bool
    tiles: int
    first: Expr
    size: int
    ctx: DeviceContext

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return 1

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The word of 16 rows."""
        return [store_at(to, place, self._word(tile, step))]

    def _word(self, tile: int, step: int) -> Expr:
        number = partial(tirx.const, dtype="int32")
        assert self.ctx.lane is not None
        group = tirx.truncdiv(self.ctx.lane, number(4))
        within = tirx.truncmod(self.ctx.lane, number(4))
        row = self.first + number(tile * ROWS) + group
        column = number(step * 2 * STEP_BYTES // self.size)
        if self.size == 2:
            start = column + tirx.truncmod(within, number(2)) * number(16)
            upper = self._bits(row + number(8), start, 16)
            return tirx.bitwise_or(
                self._bits(row, start, 16), tirx.shift_left(upper, tirx.const(16, "uint32"))
            )
        lower = row + tirx.truncmod(within, number(2)) * number(8)
        return self._bits(lower, column + tirx.truncdiv(within, number(2)) * number(32), 32)

    def _bits(self, row: Expr, column: Expr, count: int) -> Expr:
        """``count`` bits of a row, those of as many columns from ``column`` on, a multiple of that."""
        number = partial(tirx.const, dtype="int32")
        width = 8 * element_bytes(str(self.region.buffer.dtype))
        at = tirx.truncdiv(column, number(width))
        if width > count:
            shift = tirx.Cast("uint32", tirx.truncmod(column, number(width)))
            found = tirx.shift_right(self._element(row, at), shift)
            return tirx.bitwise_and(found, tirx.const((1 << count) - 1, "uint32"))
        word = self._element(row, at)
        for part in range(1, count // width):
            upper = self._element(row, at + number(part))
            word = tirx.bitwise_or(word, tirx.shift_left(upper, tirx.const(part * width, "uint32")))
        return word

    def _element(self, row: Expr, column: Expr) -> Expr:
        """An integer of the tile; of rows beyond it, whose results are ignored, the last one."""
        region, ctx = self.region, self.ctx
        rows = int_value(region.extent[-1 if self.turned else -2]) or 1
        row = tirx.min(row, tirx.const(rows - 1, "int32"))
        inner = (column, row) if self.turned else (row, column)
        starts = [tirx.Cast("int32", ctx.value(start)) for start in region.start]
        storage = ctx.storage(region.buffer)
        place = storage.offset([*starts[:-2], starts[-2] + inner[0], starts[-1] + inner[1]])
        return bits(storage.data.ptr_to([place]), element_bytes(str(region.buffer.dtype)))
