"""ScaledWarpGemm as mma.sync with ``block_scale``: operands as those of 8-bit numbers, whose bytes they are,
and a word of scales for each 16 rows and 8 columns.

Which lanes' words count (PTX ISA, "Block Scaling for mma.sync") for row group g = lane // 4 and t = lane % 4,
with thread-id 0: of A those with t = 0 for row g and t = 1 for row g + 8, of B those with t = 0 for column g.
byte-id is the first of the one, two or four bytes that an instruction takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.products.mma import COLUMNS, ROWS, scaled_instruction_name, scaled_kind
from tilec.backends.cuda.device.matrices import scaled_mma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.operands import bits
from tilec.backends.cuda.emit.products.warp_gemm import Operands, Product, Registers
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import ScaledWarpGemm
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import chunk

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Region

#: Bytes of scales that an instruction's register holds.
_WORD = 4


@emit.register(ScaledWarpGemm)
def _emit_scaled(stmt: ScaledWarpGemm, ctx: DeviceContext) -> tirx.Stmt:
    return ScaledProduct(stmt, ctx).emit()


class ScaledProduct(Product):
    """The instructions of one warp. The scales of all steps are loaded in front of the first one, those of
    as many steps in a word as it holds."""

    def __init__(self, stmt: ScaledWarpGemm, ctx: DeviceContext) -> None:
        super().__init__(stmt, ctx)
        self.name = scaled_instruction_name(self.tile.instruction, stmt)
        _, self.taken = scaled_kind(stmt)
        rows, columns = self.tile.tiles
        number, steps = partial(tirx.const, dtype="int32"), self.tile.steps
        self.scales = tuple(
            _Scales(region, size, count, part * number(count * size), self.taken, steps, ctx)
            for region, size, count, part in (
                (stmt.sfa, ROWS, rows, self.row),
                (stmt.sfb, COLUMNS, columns, self.column),
            )
        )

    def registers(self, operands: Operands) -> Registers:
        """Those of the operands, and room for the scales of all steps."""
        words = [
            tirx.decl_buffer((each.words,), "uint32", name=self.ctx.fresh(name, "int32").name, scope="local")
            for name, each in zip(("sfa", "sfb"), self.scales, strict=True)
        ]
        return (*super().registers(operands), *words)

    def first(self, operands: Operands, buffers: Registers) -> list[tirx.Stmt]:
        """The scales of all steps, and the operands of the first one."""
        loads = [load for each, to in zip(self.scales, buffers[2:], strict=True) for load in each.load(to)]
        return [*loads, *super().first(operands, buffers)]

    def load(self, operands: Operands, buffers: Registers, step: int) -> list[tirx.Stmt]:
        """The operands of one step."""
        return super().load(operands, buffers[:2], step)

    def places(self, step: int) -> list[int]:
        """Of the operands' words, the scales' words, and the scales in these."""
        scales = [each.place(step) for each in self.scales]
        return [*super().places(step), *(place for place, _ in scales), *(byte for _, byte in scales)]

    def multiply(self, buffers: Registers, places: Sequence[int], i: Expr, j: Expr) -> tirx.Stmt:
        """One instruction on the operands from ``places`` on."""
        number = partial(tirx.const, dtype="int32")
        a, b, sfa, sfb = buffers
        place = self.base + (i * number(self.tile.tiles[1]) + j) * number(4)
        return call(
            scaled_mma(self.name, places[4], places[5]).call(
                self.accumulator.ptr_to([place]),
                a.ptr_to([i * number(4) + number(places[0])]),
                b.ptr_to([j * number(2) + number(places[1])]),
                sfa[i + number(places[2])],
                sfb[j + number(places[3])],
            )
        )


@dataclass(frozen=True, eq=False)
class _Scales:
    """The scales of one operand, (rows, K / group) bytes in shared memory: for each of ``tiles`` of ``size``
    rows from ``first`` on ``taken`` bytes a step."""

    region: Region
    size: int
    tiles: int
    first: Expr
    taken: int
    steps: int
    ctx: DeviceContext

    @property
    def words(self) -> int:
        """Registers of all steps."""
        return self.tiles * self.steps // self._span

    def place(self, step: int) -> tuple[int, int]:
        """The register of the first tile in a step, and the first byte in it."""
        return step // self._span * self.tiles, step % self._span * self.taken

    def load(self, to: Var) -> list[tirx.Stmt]:
        """The words of all steps."""
        return [
            tirx.BufferStore(to, self._word(tile, word), [tirx.const(word * self.tiles + tile, "int32")])
            for word in range(self.steps // self._span)
            for tile in range(self.tiles)
        ]

    @property
    def _span(self) -> int:
        """Steps that share a word: as many as it has bytes for, where these lie side by side."""
        most = _WORD // self.taken
        return next(
            span for span in (most, most // 2, 1)
            if span == 1 or (span and self.steps % span == 0 and self._is_whole(span * self.taken))
        )  # fmt: skip

    def _is_whole(self, count: int) -> bool:
        """Whether each ``count`` bytes of a row lie side by side, aligned."""
        layout = self.ctx.storage(self.region.buffer).layout
        assert layout is not None
        return chunk(layout) % count == 0 and divides(count, self.region.start[-1], self.ctx.facts)

    def _word(self, tile: int, word: int) -> Expr:
        number = partial(tirx.const, dtype="int32")
        assert self.ctx.lane is not None
        row = self.first + number(tile * self.size) + tirx.truncdiv(self.ctx.lane, number(4))
        if self.size == ROWS:
            row = row + tirx.truncmod(self.ctx.lane, number(2)) * number(8)
        count = self._span * self.taken
        return self._bytes(row, word * count, count)

    def _bytes(self, row: Expr, column: int, count: int) -> Expr:
        """``count`` bytes of a row."""
        if self._is_whole(count):
            return bits(self._element(row, column), count)
        halves = [self._bytes(row, column + part, count // 2) for part in (0, count // 2)]
        return tirx.bitwise_or(halves[0], tirx.shift_left(halves[1], tirx.const(4 * count, "uint32")))

    def _element(self, row: Expr, column: int) -> Expr:
        """The address of a scale; of rows beyond the tile, whose results are ignored, the last one's."""
        region, ctx = self.region, self.ctx
        rows = int_value(region.extent[-2]) or 1
        row = tirx.min(row, tirx.const(rows - 1, "int32"))
        starts = [tirx.Cast("int32", ctx.value(start)) for start in region.start]
        storage = ctx.storage(region.buffer)
        at = starts[-1] + tirx.const(column, "int32")
        return storage.data.ptr_to([storage.offset([*starts[:-2], starts[-2] + row, at])])
