"""SimdGemm as simdgroup matrices, whose elements lanes load from threadgroup memory themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned
from tilec.backends.cuda.emit.products.operands import TiledOperand, bits, element_in
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Product, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.metal.products.helpers import multiply
from tilec.backends.metal.products.tiles import ELEMENTS, SIDE, SimdGemm
from tilec.ir.exprs import int32, int_value
from tilec.ir.layout_algebra import chunk
from tilec.lowering.emission.statements import store_at
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Region


@emit.register(SimdGemm)
def _emit_product(stmt: SimdGemm, ctx: DeviceContext) -> tirx.Stmt:
    return SimdProduct(stmt, ctx).emit()


class SimdProduct(Product):
    """The instructions of one simdgroup."""

    sums = ELEMENTS

    @property
    def _each(self) -> int:
        """Words of a matrix in a lane."""
        return ELEMENTS * element_bytes(self.types[0]) // 4

    def words(self) -> tuple[int, ...]:
        """As `Product.words`."""
        return self.tile.tiles[0] * self._each, self.tile.tiles[1] * self._each

    def prepared(self, words: Var, place: int, count: int) -> list[tirx.Stmt]:
        """float32 is multiplied as it is."""
        return []

    def operands(self, a: Region, b: Region) -> Operands:
        """As `Product.operands`."""
        (rows, columns), stmt = self.tile.tiles, self.stmt
        right = MemoryOperand(b, stmt.trans_b, True, self.column, columns, self.ctx)
        fragment = self.ctx.fragments.get(a.buffer)
        if fragment is not None:
            return LaneOperand(fragment.data, rows, self.tile.steps), right
        return MemoryOperand(a, stmt.trans_a, False, self.row, rows, self.ctx), right

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """The product of one step for a tile of sums."""
        (a, b, *_), each = buffers, int32(self._each)
        place = self.base + (i * int32(self.tile.tiles[1]) + j) * int32(self.sums)
        made = multiply(self.types[0]).call(
            self.accumulator.ptr_to([place]),
            a.ptr_to([i * each + int32(places[0])]),
            b.ptr_to([j * each + int32(places[1])]),
        )
        return call(made)


@dataclass(frozen=True, eq=False)
class LaneOperand(TiledOperand):
    """An operand in the registers of an earlier product's sums (`operand_layout`), of 16 bits."""

    data: Var
    tiles: int
    steps: int

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return 1

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The word of a matrix."""
        first = (tile * self.steps + step) * ELEMENTS
        return [store_at(to, place, bits(self.data.ptr_to([first]), 4))]


@dataclass(frozen=True, eq=False)
class MemoryOperand(TiledOperand):
    """An operand in threadgroup memory: ``tiles`` matrices of the simdgroup in place ``team``. Columns of a
    matrix lie along the region's last axis, or, where it is ``turned``, along the one before; ``deep``: its
    rows are along K (B), not its columns (A)."""

    region: Region
    turned: bool
    deep: bool
    team: Expr
    tiles: int
    ctx: DeviceContext

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return ELEMENTS * self._bytes // 4

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The two elements of a matrix: at once, or one by one."""
        load = self._at_once if self._is_along() else self._by_elements
        return load(to, place, tile, step)

    # ---- what a lane loads ----

    @property
    def _bytes(self) -> int:
        return element_bytes(str(self.region.buffer.dtype))

    @property
    def _items(self) -> int:
        """The extent along M or N."""
        return int_value(self.region.extent[-2 if self.turned == self.deep else -1]) or 1

    def _is_along(self) -> bool:
        """Whether a lane's two elements lie together, at a multiple of their size."""
        layout, last = self.ctx.storage(self.region.buffer).layout, self.region.start[-1]
        assert layout is not None
        together = chunk(layout) % ELEMENTS == 0 and not (self.deep and self._items % SIDE)
        return not self.turned and together and divides(ELEMENTS, last, self.ctx.facts)

    def _at_once(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        source = self._element(tile, step, 0)
        return [call(moves.fetch(4 * self.each).call(to.ptr_to([int32(place)]), source))]

    def _by_elements(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        size = self._bytes
        first, second = (bits(self._element(tile, step, number), size) for number in range(ELEMENTS))
        if size == 4:
            return [store_at(to, place, first), store_at(to, place + 1, second)]
        shift = tirx.const(8 * size, "uint32")
        return [store_at(to, place, tirx.bitwise_or(first, tirx.shift_left(second, shift)))]

    def _element(self, tile: int, step: int, number: int) -> Expr:
        """The address of element ``number`` that a lane has of a matrix."""
        row, column = self._place()
        column = column + int32(number)
        along, item = (row, column) if self.deep else (column, row)
        k, item = along + int32(step * SIDE), self._item(item, tile)
        last_is_item = self.deep != self.turned
        data, at = element_in(self.region, *((k, item) if last_is_item else (item, k)), self.ctx)
        return data.ptr_to([at])

    def _place(self) -> tuple[Expr, Expr]:
        """Row and first column of a lane in a matrix."""
        assert self.ctx.lane is not None
        lane = Unsigned(tirx.Cast("uint32", self.ctx.lane))
        row = lane // 2 % 4 + lane // 16 * 4
        column = lane % 2 * 2 + lane // 8 % 2 * 4
        return tirx.Cast("int32", row.value), tirx.Cast("int32", column.value)

    def _item(self, own: Expr, tile: int) -> Expr:
        """Where along M or N a lane is, kept inside of the operand: sums beyond are unused."""
        place = own + int32(tile * SIDE) + self.team * int32(self.tiles * SIDE)
        return tirx.min(place, int32(self._items - 1)) if self._items % SIDE else place
