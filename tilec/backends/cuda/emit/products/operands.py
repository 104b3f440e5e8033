"""Operands of mma.sync in registers: where each lane's four or two words come from.

Lane l of a warp has g = l // 4 and t = l % 4. Word q of A is row g + 8 * (q % 2), word q of B column g; both
hold 4 bytes of K from byte 4 * t of a 16-byte half, the second half for A's words 2 and 3 and B's word 1
(PTX ISA, "Matrix Fragments for mma"). ldmatrix gives eight rows of 16 bytes in this order.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.products.mma import ROWS, STEP_BYTES
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.device.matrices import ldmatrix
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned
from tilec.backends.cuda.emit.products.lane_places import LanePlace, lane_place
from tilec.backends.cuda.emit.statements import call
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import chunk
from tilec.ir.roads import Loss
from tilec.lowering.emission.statements import store_at
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.device.helper import Helper
    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Region

#: A place or a distance, known or not.
_Along = TypeVar("_Along")


def element_in(region: Region, row: Expr, column: Expr, ctx: DeviceContext) -> tuple[Var, Expr]:
    """Where an element of a region lies, whose row and column count from its start: in which memory, and its
    number there."""
    starts = [tirx.Cast("int32", ctx.value(start)) for start in region.start]
    storage = ctx.storage(region.buffer)
    return storage.data, storage.offset([*starts[:-2], starts[-2] + row, starts[-1] + column])


def bits(pointer: Expr, size: int) -> Expr:
    """``size`` bytes at ``pointer`` as an unsigned word."""
    return moves.bits(size).call(pointer)


def through(helper: Helper, words: Var, place: int, count: int, ctx: DeviceContext) -> tirx.Stmt:
    """``words[place : place + count]`` become what ``helper`` makes of each."""
    var = ctx.fresh("r", "int32")
    at = var + tirx.const(place, "int32")
    value = helper.call(words[at])
    number = tirx.const(count, "int32")
    return tirx.For(var, tirx.const(0), number, tirx.ForKind.UNROLLED, tirx.BufferStore(words, value, [at]))


class Operand(Protocol):
    """What fills the registers of one operand: ``words`` of them for every step along K."""

    @property
    def words(self) -> int:
        """Registers of all instructions of one step, in their order."""

    def begin(self) -> list[tirx.Stmt]:
        """What all loads of a product share; emitted once before them."""

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """Fills ``to[place : place + words]`` for one step."""


class TiledOperand(Operand):
    """An operand whose registers come tile by tile: ``each`` of them for every one of ``tiles``
    instructions, one behind the other."""

    tiles: int

    @property
    @abstractmethod
    def each(self) -> int:
        """Registers of one tile in one step."""

    @abstractmethod
    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """Fills ``to[place : place + each]`` for one tile and step."""

    @property
    def words(self) -> int:
        """As `Operand.words`."""
        return self.tiles * self.each

    def begin(self) -> list[tirx.Stmt]:
        """Nothing."""
        return []

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """The words of every tile."""
        return [
            stmt
            for tile in range(self.tiles)
            for stmt in self.load_tile(to, place + tile * self.each, tile, step)
        ]


@dataclass(frozen=True, eq=False)
class FragmentOperand(TiledOperand):
    """An A operand in the registers of an earlier accumulator (16-bit elements, `operand_layout`):
    ``tiles`` rows of instructions, ``steps`` steps."""

    data: Var
    tiles: int
    steps: int

    @property
    def each(self) -> int:
        """As `TiledOperand.each`."""
        return 4

    def load_tile(self, to: Var, place: int, tile: int, step: int) -> list[tirx.Stmt]:
        """The four words of an instruction."""
        first = (tile * self.steps + step) * 8
        return [store_at(to, place + q, bits(self.data.ptr_to([first + 2 * q]), 4)) for q in range(4)]


@dataclass(eq=False)
class SharedOperand:
    """An operand in shared memory, as (M or N, K) or with ``across`` as (K, M or N).

    ``size`` is 16 for A and 8 for B: the rows or columns of one instruction, of which this warp takes
    ``tiles`` from ``first`` on, a multiple of ``first_unit``; all warps take ``covered`` rows or columns."""

    region: Region
    across: bool
    size: int
    tiles: int
    first: Expr
    first_unit: int
    covered: int
    steps: int
    ctx: DeviceContext
    _place: LanePlace | None = field(default=None, init=False)

    @property
    def words(self) -> int:
        """As `Operand.words`."""
        return self.tiles * self.size // 4

    def begin(self) -> list[tirx.Stmt]:
        """The place of this lane's first row, where the others are constant distances away."""
        if not self.has_matrix_loads():
            self._note_words()
            return []
        if self.covered > self._extent():
            return []
        item, k, half = self._lane_row()
        row, column = (half * self._chunk + k, item) if self.across else (item, half * self._chunk)
        wide = 2 * self._chunk
        self._place = lane_place(self.region, row, column, self._lead(), self._steps(), wide, self.ctx)
        return list(self._place.binds) if self._place is not None else []

    def load(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """The words of every instruction: by ldmatrix, those of two B tiles at once, or one by one."""
        if not self.has_matrix_loads():
            return self._by_words(to, place, step)
        if self.size == ROWS:
            groups = [(tile, 4) for tile in range(self.tiles)]
        else:
            groups = [(tile, 2 * min(2, self.tiles - tile)) for tile in range(0, self.tiles, 2)]
        return [
            call(
                ldmatrix(count, self.across).call(
                    to.ptr_to([place + tile * self.size // 4]), self._pointer(tile, step)
                )
            )
            for tile, count in groups
        ]

    # ---- what a lane loads ----

    def _lane(self) -> Unsigned:
        assert self.ctx.lane is not None
        return Unsigned(tirx.Cast("uint32", self.ctx.lane))

    @property
    def _bytes(self) -> int:
        return element_bytes(str(self.region.buffer.dtype))

    @property
    def _chunk(self) -> int:
        """Elements of a 16-byte half of a step."""
        return 16 // self._bytes

    def _extent(self) -> int:
        """How many rows or columns the tile has."""
        return int_value(self.region.extent[-1 if self.across else -2]) or 1

    def has_matrix_loads(self) -> bool:
        """Whether eight rows of 16 bytes can be loaded at once: they are aligned and, where they must be
        transposed, of 16-bit elements in whole groups of eight."""
        layout, column = self.ctx.storage(self.region.buffer).layout, self.region.start[-1]
        assert layout is not None
        if chunk(layout) * self._bytes % 16 or not divides(self._chunk, column, self.ctx.facts):
            return False
        return not self.across or (self._bytes == 2 and self._extent() % 8 == 0)

    def _note_words(self) -> None:
        """Says that ldmatrix does not serve, and why."""
        transposes = self.across and self._bytes != 2
        why = "it transposes 16-bit elements alone" if transposes else "it takes aligned rows of 16 bytes"
        how = f"T.gemm reads {self.region.buffer.name} in pieces of {self._bytes} bytes, without ldmatrix"
        remedy = "store the operand along K" if transposes else "give its tile rows of a multiple of 16 bytes"
        if self.ctx.current is not None:
            self.ctx.take(self.ctx.current, "words", how, Loss("", why, remedy))

    def _lane_row(self) -> tuple[Unsigned, Unsigned, Unsigned]:
        """The row whose address this lane gives: its place along M or N, along K within a half (0 unless
        across), and the half."""
        lane = self._lane()
        rest, half = (lane % 16, lane // 16) if self.size == ROWS else (lane % 8, lane // 8 % 2)
        if self.across:
            return (lane // 8 % 2 if self.size == ROWS else lane // 16) * 8, lane % 8, half
        return rest if self.size == ROWS else rest + lane // 16 * 8, lane * 0, half

    # ---- addresses ----

    def _lead(self) -> tuple[tuple[Expr, int], tuple[Expr, int]]:
        """Where this warp's part starts, as rows and columns of the region, each with a divisor."""
        nothing = (tirx.const(0, "int32"), 0)
        part = (self.first, self.first_unit)
        return (nothing, part) if self.across else (part, nothing)

    def _steps(self) -> tuple[list[int], list[int]]:
        """The distances to all loads of a product, in rows and in columns."""
        pairs = 1 if self.size == ROWS else 2
        along = [tile * self.size for tile in range(0, self.tiles, pairs)]
        deep = [step * STEP_BYTES // self._bytes for step in range(self.steps)]
        return (deep, along) if self.across else (along, deep)

    def _pointer(self, tile: int, step: int) -> Expr:
        """The address that this lane gives for one ldmatrix."""
        item, deep = tile * self.size, step * STEP_BYTES // self._bytes
        if self._place is not None:
            return self._place.pointer(*self._turned(item, deep))
        lane_item, k, half = self._lane_row()
        place = self._clamped(lane_item + item, 8 if self.across else 1)
        return self._element(place, (half * self._chunk + k + deep).value)

    def _clamped(self, item: Unsigned, group: int) -> Expr:
        """``item`` from this warp's part on, kept inside of the tile: results beyond are ignored."""
        place = tirx.Cast("int32", item.value) + self.first
        extent = self._extent()
        if self.covered <= extent:
            return place
        return tirx.min(place, tirx.const(extent - group, "int32"))

    def _element(self, item: Expr, k: Expr) -> Expr:
        """The address of one element of the region."""
        data, at = self._found(item, k)
        return data.ptr_to([at])

    def _found(self, item: Expr, k: Expr) -> tuple[Var, Expr]:
        """Where one element of the region lies: in which memory, and its number there."""
        k = tirx.Cast("int32", k)
        return element_in(self.region, *self._turned(item, k), self.ctx)

    def _turned(self, item: _Along, k: _Along) -> tuple[_Along, _Along]:
        """A place along M or N and one along K, as row and column of the region."""
        return (k, item) if self.across else (item, k)

    # ---- element by element ----

    def _by_words(self, to: Var, place: int, step: int) -> list[tirx.Stmt]:
        """Word q of A is in row 8 * (q % 2) and half q // 2, word q of B in half q."""
        per_tile = self.size // 4
        return [
            self._word(to, place + tile * per_tile + q, tile * self.size + row, step, half)
            for tile in range(self.tiles)
            for q in range(per_tile)
            for row, half in [(8 * (q % 2), q // 2) if self.size == ROWS else (0, q)]
        ]

    def _word(self, to: Var, place: int, start: int, step: int, half: int) -> tirx.Stmt:
        lane, size = self._lane(), self._bytes
        count = 4 // size
        item = self._clamped(lane // 4 + start, 1)
        first = lane % 4 * count + (step * STEP_BYTES + half * 16) // size
        word: Expr = tirx.const(0, "uint32")
        for element in range(count):
            part = bits(self._element(item, (first + element).value), size)
            shift = tirx.const(8 * size * element, "uint32")
            word = part if element == 0 else tirx.bitwise_or(word, tirx.shift_left(part, shift))
        return tirx.BufferStore(to, word, [tirx.const(place, "int32")])
