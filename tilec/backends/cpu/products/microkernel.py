"""TIR of a `MicroGemm`: loops over panels and row blocks around a K loop whose accumulators are registers.

Columns go outermost, so that one panel of ``b`` stays in the first cache levels while the rows of ``a`` pass.
Rows and columns that fill no whole block are done by narrower blocks of the next powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock
from tilec.backends.cpu.products.across_tile import AcrossTile
from tilec.backends.cpu.products.forms import word_form
from tilec.backends.cpu.products.matrix_forms import MATRIX_FORMS
from tilec.backends.cpu.products.matrix_tile import MatrixTile
from tilec.backends.cpu.products.register_tile import ColumnOffsets, Memory, RegisterTile
from tilec.backends.cpu.products.tir import index, loop, sequence, trips_of
from tilec.ir.exprs import int_value
from tilec.lowering.analysis.regions import static

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Emits the epilogue of one register block: (row, col, block, accumulators) -> statement.
Epilogue = Callable[["Expr", "Expr", RegisterBlock, "Var"], "tirx.Stmt | None"]


def emit_product(gemm: MicroGemm, memory: Memory, fused_multiply: bool, epilogue: Epilogue) -> tirx.Stmt:
    """The statement that computes ``gemm``; ``fused_multiply`` where the target has an FMA instruction."""
    builder = _Builder(gemm, memory, fused_multiply, epilogue)
    parts = [builder.columns(block, start, count) for block, start, count in column_blocks(gemm)]
    return sequence(*parts)


def column_blocks(gemm: MicroGemm) -> Iterator[tuple[RegisterBlock, int, int]]:
    """Block, first column and number of blocks: whole ones, then one for every power of two in the rest."""
    columns, block = static(gemm.c.extent[-1]), gemm.block
    whole = columns // block.cols
    if whole:
        yield block, 0, whole
    start = whole * block.cols
    while start < columns:
        width = 1 << ((columns - start).bit_length() - 1)
        yield replace(block, cols=width, lanes=min(block.lanes, width)), start, 1
        start += width


class _Builder:
    """Emits the loops of one product."""

    def __init__(self, gemm: MicroGemm, memory: Memory, fused_multiply: bool, epilogue: Epilogue) -> None:
        self.gemm = gemm
        self.memory = memory
        self.fused_multiply = fused_multiply
        self.epilogue = epilogue
        self.offset: Var | None = None

    def columns(self, block: RegisterBlock, start: int, count: int) -> tirx.Stmt:
        """``count`` blocks side by side, each over all rows."""
        if count == 1:
            return self._column(block, index(start))
        return loop(count, lambda j: self._column(block, j * block.cols + start))

    def _column(self, block: RegisterBlock, col: Expr) -> tirx.Stmt:
        """One column block over all rows, after what its rows have in common."""
        form = word_form(block.form)
        if form is None or not form.offset:
            return self._rows(block, col)
        cleared = replace(self.gemm, clear=tirx.const(True, "bool"))
        row = replace(block, rows=1)
        offsets = ColumnOffsets(cleared, self.memory, self.fused_multiply, row, index(0), col)
        self.offset = offsets.data
        return sequence(
            tirx.AllocBuffer(offsets.data), offsets.start(), offsets.multiply(), self._rows(block, col)
        )

    def _rows(self, block: RegisterBlock, col: Expr) -> tirx.Stmt:
        """All rows of one column block: whole row blocks, then one narrower block per power of two."""
        rows = int_value(self.gemm.rows)
        if rows is not None:
            return self._static_rows(block, col, rows)
        limit = tirx.Var("rows", "int32")
        whole = tirx.truncdiv(limit, index(block.rows))
        parts = [loop(whole, lambda i: self._block(block, i * block.rows, col))]
        done = whole * block.rows
        for size in _powers_below(block.rows):
            parts.append(self._tail(replace(block, rows=size), done, limit, col))
        value = trips_of(self.gemm.rows)
        return sequence(tirx.Bind(limit, value), *parts)

    def _tail(self, block: RegisterBlock, whole: Expr, limit: Expr, col: Expr) -> tirx.Stmt:
        """The block of ``block.rows`` rows (a power of two), where the rows that remain have that bit."""
        rest = limit - whole
        bit = tirx.bitwise_and(rest, index(block.rows))
        before = rest - tirx.bitwise_and(rest, index(2 * block.rows - 1))
        return tirx.IfThenElse(bit != 0, self._block(block, whole + before, col), None)

    def _static_rows(self, block: RegisterBlock, col: Expr, rows: int) -> tirx.Stmt:
        whole = rows // block.rows
        parts = [loop(whole, lambda i: self._block(block, i * block.rows, col))] if whole else []
        done = whole * block.rows
        for size in _powers_below(block.rows):
            if (rows - whole * block.rows) & size:
                parts.append(self._block(replace(block, rows=size), index(done), col))
                done += size
        return sequence(*parts)

    def _block(self, block: RegisterBlock, row: Expr, col: Expr) -> tirx.Stmt:
        """One register block from its first row and column: start value, K loop, write back, epilogue."""
        registers = _tile_kind(block.form)(
            self.gemm, self.memory, self.fused_multiply, block, row, col, self.offset
        )
        parts = [tirx.AllocBuffer(registers.data), registers.start(), registers.multiply()]
        if self.gemm.c.buffer not in self.gemm.registers:
            parts.append(registers.write_back())
        parts.append(self.epilogue(row, col, block, registers.data))
        return sequence(*(part for part in parts if part is not None))


def _tile_kind(form: str) -> type[RegisterTile]:
    """The class that emits a register block of a form."""
    if form == "across":
        return AcrossTile
    return MatrixTile if form in MATRIX_FORMS else RegisterTile


def _powers_below(limit: int) -> Iterator[int]:
    """Powers of two below ``limit``, largest first."""
    size = 1 << max(limit - 1, 0).bit_length()
    while size > 1:
        size //= 2
        if size < limit:
            yield size
