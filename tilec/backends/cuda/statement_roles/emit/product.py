"""WarpgroupProduct as wgmma: operands by descriptors, sums in the registers of the accumulator's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.layouts.fragments import WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.wgmma import GROUP_ROWS, ROWS, STEP_BYTES, slab_bytes
from tilec.backends.cuda.device import moves
from tilec.backends.cuda.device.exchange import pin
from tilec.backends.cuda.device.matrices import QUAD, wgmma, wgmma_pin
from tilec.backends.cuda.device.ptx import instruction, with_operands
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.held import Fragment
from tilec.backends.cuda.nodes import ProductsWait, ProxyFence, SideBySide, WarpgroupProduct
from tilec.backends.cuda.statement_roles.emit.across import first_row, turned_words
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, ptx, registers, run, u32
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import extent_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region

#: Matrix descriptor (PTX ISA, "Shared Memory Matrix Layout"): the pattern at bit 62 by bytes of a slab's
#: rows, the step from one group of eight rows to the next at bit 32, that between slabs of an operand across
#: K at bit 16.
_PATTERN, _GROUP_BIT, _SLAB_BIT, _UNIT = {128: 1, 64: 2, 32: 3}, 32, 16, 4


class Operand:
    """A region of a shared tile as an operand. ``across``: its rows run along M or N, else along K."""

    def __init__(self, region: Region, across: bool, ctx: DeviceContext) -> None:
        tile = region.buffer
        self._across, self._size = across, element_bytes(str(tile.dtype))
        self._width = slab_bytes(tile)
        *lead, rows, _ = (int_value(extent) or 1 for extent in tile.shape)
        self._slab = rows * self._width
        self._first = ctx.shared_place(tile) + self._start(region, lead, ctx)

    def _start(self, region: Region, lead: list[int], ctx: DeviceContext) -> Expr:
        """Bytes from the beginning of the tile to that of the region."""
        version = (int_value(region.buffer.shape[-1]) or 1) * self._size // self._width * self._slab
        total: Expr = u32(0)
        for extent, start in zip(reversed(lead), reversed(region.start[:-2]), strict=True):
            total, version = total + u32(ctx.value(start)) * u32(version), version * extent
        row, column = (u32(ctx.value(start)) for start in region.start[-2:])
        per = self._width // self._size
        slabs, rest = tirx.truncdiv(column, u32(per)), tirx.truncmod(column, u32(per))
        total = total + row * u32(self._width) + slabs * u32(self._slab) + rest * u32(self._size)
        return ctx.facts.analyzer.simplify(total)

    def descriptor(self, rows: Expr) -> Expr:
        """The matrix descriptor, from row ``rows`` of M or column of N on."""
        place = self._first + self._along(rows)
        low = T.bitwise_and(T.shift_right(place, u32(_UNIT)), u32(0x3FFF))
        step = self._slab if self._across else 1 << _UNIT
        fields = self.pattern(self._width)
        fields |= (GROUP_ROWS * self._width >> _UNIT) << _GROUP_BIT | (step >> _UNIT) << _SLAB_BIT
        return tirx.Cast("uint64", low) + tirx.const(fields, "uint64")

    def pattern(self, width: int) -> int:
        """What of a descriptor says how rows of so many bytes are swizzled."""
        return _PATTERN[width] << 62

    def _along(self, rows: Expr) -> Expr:
        """Bytes to a row of M or a column of N: a row of groups of eight, or a part of a slab."""
        if not self._across:
            return u32(rows) * u32(self._width)
        taken, width = u32(rows) * u32(self._size), u32(self._width)
        return tirx.truncdiv(taken, width) * u32(self._slab) + tirx.truncmod(taken, width)

    def step(self, number: int, rows: int) -> Expr:
        """What a step along K and so many rows of M or columns of N add to a descriptor."""
        if self._across:
            offset = number * (STEP_BYTES // self._size) * self._width
            slabs, part = divmod(rows * self._size, self._width)
            offset += slabs * self._slab + part
        else:
            slab, part = divmod(number * STEP_BYTES, self._width)
            offset = slab * self._slab + part + rows * self._width
        return tirx.const(offset >> _UNIT, "uint64")


@emits(WarpgroupProduct)
def _product(stmt: WarpgroupProduct, ctx: DeviceContext) -> None:
    """All steps along K, as one group."""
    Product(stmt, ctx).issue()
    ptx("wgmma.commit_group.sync.aligned")


@emits(SideBySide)
def _side_by_side(stmt: SideBySide, ctx: DeviceContext) -> None:
    """All columns by one instruction each step, as the first one's group; those of the others are empty, as
    waits count them."""
    first, *others = (Product(each, ctx) for each in stmt.body if isinstance(each, WarpgroupProduct))
    first.beside = others
    first.issue()
    for _ in stmt.body:
        ptx("wgmma.commit_group.sync.aligned")


class Product:
    """The instructions of one warpgroup. ``beside``: products whose sums the same instructions add to, behind
    its own; ``opcode`` begins their name, ``spread`` is how many steps of B one of A has."""

    opcode, spread = "wgmma.mma_async.sync.aligned", 1
    beside: Sequence[Product] = ()

    def __init__(self, stmt: WarpgroupProduct, ctx: DeviceContext) -> None:
        self.stmt, self.ctx = stmt, ctx
        self.rows, columns = stmt.tile.tiles
        self.columns = columns * 8
        assert ctx.warp is not None
        across = stmt.tile.warps[1]
        group = tirx.truncdiv(ctx.warp, i32(WARPS_OF_A_GROUP)) if across > 1 else i32(0)
        self.row = first_row(stmt.tile, ctx)
        self.column = tirx.truncmod(group, i32(across)) * i32(self.columns) if across > 1 else i32(0)
        self.base = self._slice()

    def issue(self) -> None:
        """All instructions, row by row in every step."""
        b = Operand(self.stmt.b, not self.stmt.trans_b, self.ctx)
        first_b = let("b", b.descriptor(self.column))
        left = self._left()
        ptx("wgmma.fence.sync.aligned")
        template: Any = None
        for step in range(self.stmt.tile.steps):
            for row in range(self.rows):
                for first in range(0, self.columns, self.stmt.width):
                    operands = [*left(step, row), first_b + b.step(step * self.spread, first)]
                    template = self.instruction(template, step, row, first, operands)
                    run(template)

    def instruction(self, template: Any, step: int, row: int, first: int, operands: list[Expr]) -> Any:
        """One instruction, like ``template`` where there is one."""
        if not self.is_in_table:
            helper = wgmma(self.name, self.dtype, self.sums_each, self.from_registers, self.tail)
            return helper.call(self.sums_at(row, first), *operands, self.adds(step))
        sums = self._sums(row, first)
        if template is not None:
            return with_operands(template, dict(enumerate([*sums, *operands, self.adds(step)])))
        return instruction(self.name)(*sums, *operands, T.ptx.pred(self.adds(step)), *self.tail)

    @property
    def is_in_table(self) -> bool:
        """Whether TVM's table has the instruction with the type of its sums."""
        return self.dtype == "float32"

    @property
    def dtype(self) -> str:
        """Of the sums."""
        return str(self.stmt.c.buffer.dtype)

    @property
    def sums_each(self) -> int:
        """Registers of an instruction's sums."""
        return self.stmt.width * element_bytes(self.dtype) // 8

    def sums_at(self, row: int, first: int) -> Expr:
        """The address of an instruction's sums."""
        return self.ctx.fragments[self.stmt.c.buffer].data.ptr_to([self._first_sum(row, first)])

    @property
    def tail(self) -> tuple[int, ...]:
        """Signs and sides of operands, of types that have them."""
        return () if self.dtype == "int32" else (1, 1, *self._sides)

    @property
    def name(self) -> str:
        """The instruction."""
        rest, _, depth = self.stmt.tile.instruction.rpartition("k")
        rows, _, columns = rest.rpartition("n")
        wide = int(columns) * (1 + len(self.beside))
        return f"{self.opcode}.{rows}n{wide}k{depth}.{self.stmt.types}"

    @property
    def _sides(self) -> list[int]:
        """Which operands in shared memory lie across K, of types that may."""
        sides = [int(self.stmt.trans_a), int(not self.stmt.trans_b)]
        return [] if self._size != 2 else sides[1:] if self.from_registers else sides

    @property
    def _size(self) -> int:
        return element_bytes(str(self.stmt.b.buffer.dtype))

    @property
    def from_registers(self) -> bool:
        """Whether the A operand is in registers."""
        return self.stmt.a.buffer in self.ctx.fragments or self.stmt.registers is not None

    def _left(self) -> Any:
        """What gives the A operand of a step and a row of instructions."""
        if self.from_registers:
            words = self._words()
            count = self.stmt.tile.steps

            def held(step: int, row: int) -> list[Expr]:
                at = (row * count + step) * 4
                return [words[at + q] for q in range(4)] if self.is_in_table else [words.ptr_to([at])]

            return held
        a = Operand(self.stmt.a, self.stmt.trans_a, self.ctx)
        first = let("a", a.descriptor(self.row))
        return lambda step, row: [first + a.step(step, row * ROWS)]

    def adds(self, step: int) -> Expr:
        """Whether an instruction adds to its sums."""
        if step:
            return tirx.const(1, "uint32")
        verdict = self.ctx.facts.prove(self.stmt.clear)
        if verdict is not None:
            return tirx.const(int(not verdict), "uint32")
        return tirx.Cast("uint32", tirx.Not(self.ctx.value(self.stmt.clear)))

    def _sums(self, row: int, first: int) -> list[Expr]:
        data = self.ctx.fragments[self.stmt.c.buffer].data
        start = self._first_sum(row, first)
        own = [data[start + i] for i in range(self.stmt.width // 2)]
        return own + [each for other in self.beside for each in other._sums(row, first)]

    def _first_sum(self, row: int, first: int) -> int:
        """The first element of an instruction's sums."""
        return self.base + (row * self.columns + first) // 2

    def _words(self) -> Var:
        """The A operand in registers, as the words of instructions: four for each row of them and step."""
        if self.stmt.a.buffer not in self.ctx.fragments:
            return turned_words(self.stmt, self.ctx)
        fragment, size = self.ctx.fragments[self.stmt.a.buffer], self._size
        count = extent_of(fragment.layout, "reg") * size // 4
        words = registers(count, "uint32")
        for number in range(count):
            made = self._quad(fragment, number) if size == 1 else _bits(fragment, number * 4 // size, 4)
            T.buffer_store(words, made, [number])
        run(pin("uint32", count).call(words.ptr_to([0])))
        return words

    def _quad(self, fragment: Fragment, number: int) -> Expr:
        """A word of four neighbours of 8 bits, from pairs that lie as in an accumulator."""
        step, part = divmod(number, 4)
        half, below = divmod(part, 2)
        pair = step * 16 + half * 8 + below * 2
        pairs = T.bitwise_or(
            _bits(fragment, pair, 2), T.shift_left(_bits(fragment, pair + 4, 2), tirx.const(16, "uint32"))
        )
        return QUAD.call(pairs, self.ctx.lane)

    def _slice(self) -> int:
        """The first register of the accumulator's slice."""
        region, total = self.stmt.c, 0
        rows, columns = self.stmt.tile.tiles
        count = rows * columns * 4
        across = (int_value(region.buffer.shape[-1]) or 1) // (int_value(region.extent[-1]) or 1)
        for axis, step in ((-2, count * across), (-1, count)):
            start, extent = int_value(region.start[axis]) or 0, int_value(region.extent[axis]) or 1
            total += start // extent * step
        return total


def _bits(fragment: Fragment, first: int, size: int) -> Expr:
    """So many bytes of a fragment, from an element on, as a word."""
    return moves.bits(size).call(fragment.data.ptr_to([first]))


@emits(ProductsWait)
def _wait(stmt: ProductsWait, ctx: DeviceContext) -> None:
    ptx("wgmma.wait_group.sync.aligned", stmt.pending)
    for region in stmt.sums:
        fragment = ctx.fragments[region.buffer]
        count = extent_of(fragment.layout, "reg")
        dtype = str(fragment.data.dtype)
        words = count * element_bytes(dtype) // 4
        made = pin(dtype, count) if dtype == "float32" else wgmma_pin(dtype, words)
        run(made.call(fragment.data.ptr_to([0])))


@emits(ProxyFence)
def _fence(stmt: ProxyFence, ctx: DeviceContext) -> None:
    ptx("fence.proxy.async.shared::cta")
