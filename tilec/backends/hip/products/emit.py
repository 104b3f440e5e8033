"""WaveGemm as matrix instructions of waves, with operands in the registers that these take them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.device.exchange import ANEW, exchange
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned
from tilec.backends.cuda.emit.products.operands import TiledOperand, bits, element_in, through
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Product, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.hip.chips import chip_of
from tilec.backends.hip.products.helpers import FNUZ, multiply, words_of
from tilec.backends.hip.products.instructions import SIDE, Form, Matrix, matrix
from tilec.backends.hip.products.tiles import WaveGemm, WaveTile
from tilec.ir.exprs import int32, int_value
from tilec.ir.layout_algebra import chunk
from tilec.lowering.emission.statements import store_at
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Region

#: Bytes that a lane loads at once.
_SIZES = (16, 8, 4)


@emit.register(WaveGemm)
def _emit_product(stmt: WaveGemm, ctx: DeviceContext) -> tirx.Stmt:
    return WaveProduct(stmt, ctx).emit()


class WaveProduct(Product):
    """The instructions of one wave."""

    @property
    def form(self) -> Form:
        """Of its instruction."""
        assert isinstance(self.tile, WaveTile)
        return self.tile.form

    @property
    def sums(self) -> int:  # type: ignore[override]
        """Registers of an instruction's sums in a lane."""
        return self.form.run

    @cached_property
    def matrix(self) -> Matrix:
        """Its instruction."""
        return matrix(self.ctx.target, self.types, self.tile.instruction)

    def team(self) -> tuple[Expr, int]:
        """The number of a wave."""
        warp, warps = super().team()
        each = self.form.warps
        return (warp, warps) if each == 1 else (tirx.truncdiv(warp, int32(each)), warps // each)

    def words(self) -> tuple[int, ...]:
        """As `Product.words`."""
        return self.tile.tiles[0] * self.form.words, self.tile.tiles[1] * self.form.words

    @property
    def word(self) -> str:
        """As `Product.word`."""
        return "uint32"

    @property
    def depth(self) -> int:
        """Both where they take no more than a quarter of a thread's registers: the rest is for sums."""
        both = sum(self.words()) * super().depth
        return super().depth if 4 * both <= chip_of(self.ctx.target).registers else 1

    def prepared(self, words: Var, place: int, count: int) -> list[tirx.Stmt]:
        """8-bit floats in the bits that the instruction reads; all others are multiplied as they are."""
        return [through(FNUZ, words, place, count, self.ctx)] if self.matrix.reads else []

    def operands(self, a: Region, b: Region) -> Operands:
        """As `Product.operands`."""
        (rows, columns), stmt = self.tile.tiles, self.stmt
        fragment, form = self.ctx.fragments.get(a.buffer), self.form
        runs = 1 if fragment is None else form.held // form.run
        right = MemoryOperand(b, not stmt.trans_b, self.column, columns, form, form.apart, runs, self.ctx)
        if fragment is not None:
            return LaneOperand(fragment.data, rows, self.tile.steps, form, self.ctx), right
        return MemoryOperand(a, stmt.trans_a, self.row, rows, form, False, runs, self.ctx), right

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """The instructions of one step for a tile of sums."""
        (a, b, *_), words = buffers, self.form.words
        place = self.base + (i * int32(self.tile.tiles[1]) + j) * int32(self.sums)
        helper, each = multiply(self.matrix, self.form, self.types[0]), words_of(self.matrix)
        calls = [
            helper.call(
                self.accumulator.ptr_to([place]),
                a.ptr_to([i * int32(words) + int32(places[0] + number * each)]),
                b.ptr_to([j * int32(words) + int32(places[1] + number * each)]),
            )
            for number in range(self.matrix.per_step)
        ]
        return tirx.SeqStmt([call(one) for one in calls]) if len(calls) > 1 else call(calls[0])


@dataclass(frozen=True, eq=False)
class LaneOperand(TiledOperand):
    """An operand in the registers of an earlier product's sums (`operand_layout`), of 16 bits."""

    data: Var
    tiles: int
    steps: int
    form: Form
    ctx: DeviceContext

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return self.form.words

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The words of an instruction."""
        first = (tile * self.steps + step) * self.form.held
        own = [bits(self.data.ptr_to([first + 2 * word]), 4) for word in range(self.form.held // 2)]
        if not self.form.repeats:
            return [store_at(to, place + word, value) for word, value in enumerate(own)]
        return [stmt for word, value in enumerate(own) for stmt in self._both(to, place + word, value)]

    def _both(self, to: Var, place: int, value: Expr) -> list[tirx.Stmt]:
        """A word of either half of the wave, that of the lower half first, in all lanes."""
        mine, other = (self.ctx.fresh(name, "uint32") for name in ("own", "other"))
        far = exchange("uint32").call(mine, int32(SIDE))
        assert self.ctx.lane is not None
        is_low = self.ctx.lane < int32(SIDE)
        return [
            tirx.Bind(mine, value),
            tirx.Bind(other, far),
            store_at(to, place, tirx.Select(is_low, mine, other)),
            store_at(to, place + self.form.held // 2, tirx.Select(is_low, other, mine)),
        ]


@dataclass(frozen=True, eq=False)
class MemoryOperand(TiledOperand):
    """An operand in shared memory, as (M or N, K) or with ``across`` as (K, M or N): the rows of ``tiles``
    instructions of the wave in place ``team``. ``spread``: lanes have rows of each 16 in such an order that a
    lane's sums, which are of rows ``apart``, are neighbours. A step of a lane is ``runs`` pieces, each beside
    those of other lanes: several where the other operand is sums, which lie in such runs."""

    region: Region
    across: bool
    team: Expr
    tiles: int
    form: Form
    spread: bool
    runs: int
    ctx: DeviceContext

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return self.form.words

    def begin(self) -> list[tirx.Stmt]:
        """Where registers are few, the lane, of which the compiler does not know that it is the same in each
        trip of a loop: it would keep the addresses of all elements, dozens, and spill sums for them."""
        if self._own is self.ctx.lane:
            return []
        return [tirx.Bind(self._own, ANEW.call(self.ctx.lane))]

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The words of an instruction: in pieces as wide as can be, or element by element."""
        size = next((size for size in _SIZES if self._is_along(size)), self._bytes)
        return self._pieces(to, place, tile, step, size)

    # ---- what a lane loads ----

    @property
    def _bytes(self) -> int:
        return element_bytes(str(self.region.buffer.dtype))

    def _is_along(self, size: int) -> bool:
        """Whether a lane's pieces of K lie together by ``size`` bytes, at multiples of these."""
        layout, column = self.ctx.storage(self.region.buffer).layout, self.region.start[-1]
        assert layout is not None
        if self.across or 4 * self.form.words // self.runs % size or size % self._bytes:
            return False
        together = chunk(layout) * self._bytes % size == 0
        return together and divides(size // self._bytes, column, self.ctx.facts)

    def _pieces(self, to: Var, place: int, tile: int, step: int, size: int) -> list[tirx.Stmt]:
        """Loads of ``size`` bytes, or what makes words of smaller ones."""
        if size < 4:
            return self._by_elements(to, place, tile, step)
        item = self.item(tile)
        return [
            call(
                moves.fetch(size).call(
                    to.ptr_to([place + at // 4]), self.element(item, self._depth(step, at // self._bytes))
                )
            )
            for at in range(0, 4 * self.form.words, size)
        ]

    def _by_elements(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        size, item = self._bytes, self.item(tile)
        count = 4 // size
        made = []
        for word in range(self.form.words):
            value: Expr = tirx.const(0, "uint32")
            for element in range(count):
                part = bits(self.element(item, self._depth(step, word * count + element)), size)
                shift = tirx.const(8 * size * element, "uint32")
                value = part if element == 0 else tirx.bitwise_or(value, tirx.shift_left(part, shift))
            made.append(store_at(to, place + word, value))
        return made

    @cached_property
    def _own(self) -> Var:
        assert self.ctx.lane is not None
        are_few = chip_of(self.ctx.target).has_few_registers
        return self.ctx.fresh("anew", "int32") if are_few else self.ctx.lane

    def _lane(self) -> Unsigned:
        return Unsigned(tirx.Cast("uint32", self._own))

    def item(self, tile: int) -> Expr:
        """The row or column that a lane has of a tile, kept inside of the operand: sums beyond are unused."""
        own = self._lane() % SIDE
        own = own % self.form.pieces * self.form.run + own // self.form.pieces if self.spread else own
        place = tirx.Cast("int32", (own + tile * SIDE).value) + self.team * int32(self.tiles * SIDE)
        extent = int_value(self.region.extent[-1 if self.across else -2]) or 1
        return tirx.min(place, int32(extent - 1)) if extent % SIDE else place

    def _depth(self, step: int, element: int) -> Expr:
        """Where along K an element of a lane's words is."""
        each = 4 * self.form.words // self._bytes // self.runs
        run, element = divmod(element, each)
        first = int32((step * self.runs + run) * (self.form.step_bytes // self._bytes // self.runs) + element)
        return first if self.form.repeats else self.part() * int32(each) + first

    def part(self) -> Expr:
        """Which piece of a step a lane has."""
        part = tirx.Cast("int32", (self._lane() // SIDE).value)
        if self.form.warps == 1:
            return part
        assert self.ctx.warp is not None
        return part + tirx.truncmod(self.ctx.warp, int32(2)) * int32(2)

    def element(self, item: Expr, k: Expr) -> Expr:
        """The address of one element of the region."""
        row, column = (k, item) if self.across else (item, k)
        data, at = element_in(self.region, row, column, self.ctx)
        return data.ptr_to([at])
