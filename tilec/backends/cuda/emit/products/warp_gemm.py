"""WarpGemm as mma.sync: operands by ldmatrix where a row's 16 bytes lie together, element by element else, as
those of float64 are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.mma import COLUMNS, ROWS, instruction_name, word_bytes
from tilec.backends.cuda.device.floats import TF32
from tilec.backends.cuda.device.matrices import double_mma, integer_mma
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.memory import zeroed
from tilec.backends.cuda.emit.products.double_operands import DoubleOperand
from tilec.backends.cuda.emit.products.operands import FragmentOperand, Operand, SharedOperand, through
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import WarpGemm
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.places import place_of
from tilec.lowering.emission.statements import guarded, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region


#: Those of A and of B, and what else an instruction takes; the registers of each.
Operands = tuple[Operand, ...]
Registers = tuple["Var", ...]


@emit.register(WarpGemm)
def _emit_product(stmt: WarpGemm, ctx: DeviceContext) -> tirx.Stmt:
    return Product(stmt, ctx).emit()


class Product:
    """The instructions of one warp, each of which leaves ``sums`` registers in a lane."""

    sums = 4

    def __init__(self, stmt: WarpGemm, ctx: DeviceContext) -> None:
        self.stmt, self.ctx, self.tile = stmt, ctx, stmt.tile
        down, across = self.tile.warps
        team, teams = self.team()
        divisor = tirx.const(across, "int32")
        warp = team if down * across == teams else tirx.truncmod(team, tirx.const(down * across, "int32"))
        self.row = tirx.truncdiv(warp, divisor) if down > 1 else tirx.const(0, "int32")
        self.column = tirx.truncmod(warp, divisor) if across > 1 else tirx.const(0, "int32")
        dtype = str(stmt.b.buffer.dtype)
        self.types = (str(stmt.a.buffer.dtype), dtype, str(stmt.c.buffer.dtype))
        self.accumulator = ctx.fragments[stmt.c.buffer].data
        self.base = self._slice()

    def emit(self) -> tirx.Stmt:
        """All steps along K, after the accumulator is cleared where it is to be. The operands of a step are
        loaded while the step before it is multiplied, where registers have both, else behind it."""
        operands = self.operands(self.stmt.a, self.stmt.b)
        buffers = self.registers(operands)
        parts = [*self.clear(), *(tirx.AllocBuffer(buffer) for buffer in buffers)]
        parts += self.first(operands, buffers)
        for step in range(self.tile.steps):
            loads = self.load(operands, buffers, step + 1) if step + 1 < self.tile.steps else []
            work = self.step(buffers, step)
            parts += [*loads, *work] if self.depth > 1 else [*work, *loads]
        return sequence(parts)

    @property
    def depth(self) -> int:
        """Steps whose operands have registers at once."""
        return min(2, self.tile.steps)

    def team(self) -> tuple[Expr, int]:
        """The number of the warp that issues an instruction, among how many."""
        assert self.ctx.warp is not None
        return self.ctx.warp, self.ctx.warps

    def registers(self, operands: Operands) -> Registers:
        """Room for the words of `depth` steps of each operand."""
        return tuple(self._room(name, operand.words) for name, operand in zip("abe", operands, strict=False))

    def words(self) -> tuple[int, ...]:
        """Registers of one step of each operand."""
        (rows, columns), each = self.tile.tiles, word_bytes(self.types[0])
        return rows * ROWS // each, columns * COLUMNS // each

    @property
    def word(self) -> str:
        """The type of these registers."""
        return "float64" if self.types[0] == "float64" else "uint32"

    def places(self, step: int) -> list[int]:
        """Where the registers of each operand begin in a step."""
        return [step % self.depth * count for count in self.words()]

    def _room(self, name: str, words: int) -> Var:
        count = words * self.depth
        return tirx.decl_buffer((count,), self.word, name=self.ctx.fresh(name, "int32").name, scope="local")

    def first(self, operands: Operands, buffers: Registers) -> list[tirx.Stmt]:
        """What all loads from ``operands`` share, and those of the first step."""
        shared = [part for operand in operands for part in operand.begin()]
        return [*shared, *self.load(operands, buffers, 0)]

    def load(self, operands: Operands, buffers: Registers, step: int) -> list[tirx.Stmt]:
        """The loads of one step."""
        return [
            part
            for operand, buffer in zip(operands, buffers, strict=True)
            for part in operand.load(buffer, step % self.depth * operand.words, step)
        ]

    def step(self, buffers: Registers, step: int) -> list[tirx.Stmt]:
        """The instructions of one step; neighbours share an operand, walking to and fro."""
        rows, columns = self.tile.tiles
        words, places = self.words(), self.places(step)
        parts: list[tirx.Stmt] = []
        for buffer, place, count in zip(buffers[: len(words)], places[: len(words)], words, strict=True):
            parts += self.prepared(buffer, place, count)
        i, j = (self.ctx.fresh(name, "int32") for name in ("row", "column"))
        back = tirx.const(columns - 1, "int32") - j
        there = tirx.Select(
            tirx.EQ(tirx.truncmod(i, tirx.const(2, "int32")), tirx.const(0, "int32")), j, back
        )
        body = self.multiply(buffers, places, i, there)
        for var, count in ((j, columns), (i, rows)):
            body = tirx.For(var, tirx.const(0), tirx.const(count), tirx.ForKind.UNROLLED, body)
        return [*parts, body]

    def prepared(self, words: Var, place: int, count: int) -> list[tirx.Stmt]:
        """Words as the instruction takes them: those of float32 rounded to TF32, to nearest."""
        return [through(TF32, words, place, count, self.ctx)] if self.types[0] == "float32" else []

    def operands(self, a: Region, b: Region) -> Operands:
        """The operands of the product, in these regions."""
        return self.dense_operands(a, b, self.tile.steps)

    def dense_operands(self, a: Region, b: Region, deep: int) -> tuple[Operand, Operand]:
        """The operands, in these regions; B in ``deep`` steps."""
        stmt, steps = self.stmt, self.tile.steps
        (rows, columns), (down, wide) = self.tile.tiles, self.tile.warps
        high, broad = rows * ROWS, columns * COLUMNS
        shared = DoubleOperand if self.types[0] == "float64" else SharedOperand
        right = shared(
            b, not stmt.trans_b, COLUMNS, columns,
            self.column * tirx.const(broad, "int32"), broad if wide > 1 else 0, wide * broad, deep, self.ctx,
        )  # fmt: skip
        fragment = self.ctx.fragments.get(a.buffer)
        if fragment is not None:
            return FragmentOperand(fragment.data, rows, steps), right
        left = shared(
            a, stmt.trans_a, ROWS, rows,
            self.row * tirx.const(high, "int32"), high if down > 1 else 0, down * high, steps, self.ctx,
        )  # fmt: skip
        return left, right

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """One instruction on the operands from ``places`` on."""
        (a, b, *_), number = buffers, partial(tirx.const, dtype="int32")
        each = word_bytes(self.types[0])
        own, other = ROWS // each, COLUMNS // each
        first, second = i * number(own) + number(places[0]), j * number(other) + number(places[1])
        place = self.base + (i * number(self.tile.tiles[1]) + j) * number(4)
        name = instruction_name(self.tile.instruction, self.types)
        helper = {"int32": integer_mma, "float64": double_mma}.get(self.types[2])
        if helper is not None:
            held = (self.accumulator.ptr_to([place]), a.ptr_to([first]), b.ptr_to([second]))
            return call(helper(name).call(*held))
        sums = [self.accumulator[place + number(q)] for q in range(4)]
        left, right = (
            [a[first + number(q)] for q in range(own)],
            [b[second + number(q)] for q in range(other)],
        )
        return call(instruction(name)(*sums, *left, *right, *sums))

    def clear(self) -> list[tirx.Stmt]:
        """Sets the accumulator to 0 where the product does not add to it."""
        verdict = self.ctx.facts.prove(self.stmt.clear)
        if verdict is False:
            return []
        rows, columns = self.tile.tiles
        loop = zeroed(self.accumulator, self.base, rows * columns * self.sums, self.ctx)
        tests = [] if verdict else [self.ctx.value(self.stmt.clear)]
        return [guarded(loop, tests)]

    def _slice(self) -> Expr:
        """The first register of the accumulator's slice."""
        region, ctx = self.stmt.c, self.ctx
        rows, columns = self.tile.tiles
        count = rows * columns * self.sums
        whole, part = int_value(region.buffer.shape[-1]), int_value(region.extent[-1])
        across = whole // part  # type: ignore[operator]
        total: Expr = tirx.const(0, "int32")
        for axis, step in ((-2, count * across), (-1, count)):
            start, extent = region.start[axis], region.extent[axis]
            zero, size = tirx.const(0, dtype_of(start)), tirx.const(int_value(extent), dtype_of(start))
            if ctx.facts.prove(tirx.EQ(tirx.floormod(start, size), zero)) is not True:
                raise UnsupportedError(
                    f"T.gemm adds to a part of {region.buffer.name} that starts between its tiles",
                    place=place_of(self.stmt, "T.gemm"),
                    remedy=f"start slices at multiples of their size ({int_value(extent)})",
                )
            index = tirx.Cast("int32", ctx.value(ctx.facts.simplify(tirx.floordiv(start, size))))
            total = total + index * tirx.const(step, "int32")
        return ctx.facts.analyzer.simplify(total)
