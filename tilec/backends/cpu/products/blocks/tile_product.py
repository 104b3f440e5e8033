"""TIR of a `MicroGemm` on a matrix unit: blocks of up to two by two register tiles.

All whole blocks first, rows outermost, then the rows that fill none: their tiles have as many rows as are
left. The rows of ``a`` stay in the first cache, ``b`` passes by as it lies in memory, past that cache where
it is large. Sums that an epilogue takes lie in a small array in between, others in ``c`` itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock, element
from tilec.backends.cpu.products.blocks.microkernel import Epilogue, column_blocks
from tilec.backends.cpu.products.blocks.register_tile import Memory, lane
from tilec.backends.cpu.products.forms.tile_forms import FIRST_CACHE, TILE, TileForm
from tilec.backends.cpu.products.tir import get, index, loop, put, sequence, trips_of, unrolled
from tilec.ir.exprs import int_value
from tilec.lowering.analysis.regions import static

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    #: Emits a block of sums: (block, first column) -> statement.
    Blocks = Callable[[RegisterBlock, Expr], "tirx.Stmt"]
    #: Address of a first element, bytes from row to row.
    _Place = tuple[Expr, Expr]


def emit_tiles(form: TileForm, gemm: MicroGemm, memory: Memory, epilogue: Epilogue) -> tirx.Stmt:
    """The statement that computes ``gemm`` by ``form``."""
    return _Builder(form, gemm, memory, epilogue).product()


class _Builder:
    """Emits the loops of one product."""

    def __init__(self, form: TileForm, gemm: MicroGemm, memory: Memory, epilogue: Epilogue) -> None:
        self.form = form
        self.gemm = gemm
        self.memory = memory
        self.epilogue = epilogue
        self.steps, self.words = form.steps(static(gemm.depth)) or (0, 0)
        self.past = self._passes()

    def product(self) -> tirx.Stmt:
        """Whole blocks, the rows that are left, and no state at the end."""
        rows, high = tirx.Var("rows", "int32"), self.gemm.block.rows
        known = int_value(self.gemm.rows)
        limit = rows if known is None else index(max(known, 0))
        whole = tirx.truncdiv(limit, index(high))
        parts = [
            _where(whole > 0, self._whole(whole)),
            _where(limit - whole * high > 0, self._rest(whole * high, limit - whole * high)),
            self.form.release(),
        ]
        bound = [tirx.Bind(rows, trips_of(self.gemm.rows))] if known is None else []
        return sequence(*bound, *(part for part in parts if part is not None))

    def _passes(self) -> bool:
        """Whether ``b`` is too large for the first cache to keep it, beside rows of ``a``, for the next block
        of rows: it would only push these rows out."""
        columns, high = static(self.gemm.columns), self.gemm.block.rows
        several = columns > self.gemm.block.cols
        return several and (columns + high) * 4 * self.words * self.steps > FIRST_CACHE

    def _whole(self, count: Expr) -> tirx.Stmt:
        """``count`` rows of blocks whose tiles are full."""
        high = self.gemm.block.rows
        tiles, full = high // TILE, index(TILE)

        def row(i: Expr) -> tirx.Stmt:
            if self._holds():
                return self._held(i * high)
            return self._columns(partial(self._block, tiles, index(high), i * high))

        return sequence(self.form.configure(full, full, self.words), loop(count, row))

    def _holds(self) -> bool:
        """Whether blocks of rows are held while several panels pass, and their sums begin and stay in memory
        of ``c``."""
        gemm = self.gemm
        plain = not gemm.body and gemm.c.buffer not in gemm.registers and int_value(gemm.clear) == 1
        several = gemm.block.rows == 2 * TILE and static(gemm.columns) > gemm.block.cols
        return plain and several and gemm.b.panel is not None and self.form.keeps_rows(self.steps, self.words)

    def _held(self, row: Expr) -> tirx.Stmt:
        """All panels beside the block of rows from ``row`` on."""
        sums, pitch = self._c(row, index(0))
        panels = _wide(static(self.gemm.columns) // TILE)
        numbers = (*self._rows_of_a(row), *self._columns_of_b(index(0)), sums, _wide(pitch), panels)
        return self.form.multiply_held(self.steps, self.past, *numbers)

    def _rest(self, first: Expr, count: Expr) -> tirx.Stmt:
        """``count`` rows, fewer than a block has, from ``first`` on."""
        upper, lower = tirx.min(count, index(TILE)), tirx.max(count - TILE, index(1))
        one, two = (self._columns(partial(self._block, tiles, count, first)) for tiles in (1, 2))
        choice = _where(count <= TILE, one, two)
        return sequence(self.form.configure(upper, lower, self.words), choice)

    def _columns(self, body: Blocks) -> tirx.Stmt:
        """``body`` for every block of columns."""
        return sequence(
            *(_side_by_side(body, *blocks) for blocks in column_blocks(self.gemm, static(self.gemm.columns)))
        )

    def _block(self, tiles: int, rows: Expr, row: Expr, block: RegisterBlock, col: Expr) -> tirx.Stmt:
        """``tiles`` x ``block.cols`` / 16 tiles of sums, ``rows`` of whose rows count."""
        gemm = self.gemm
        multiplied = partial(self._multiplied, block, tiles, row, col)
        if gemm.c.buffer not in gemm.registers:
            sums = self._c(row, col)
            finished = self._finished(block, None, rows, row, col)
            if gemm.last is not None and finished:
                finished = [tirx.IfThenElse(gemm.last, sequence(*finished), None)]
            return sequence(multiplied(sums, sums), *finished)
        data = tirx.decl_buffer((tiles * TILE * block.cols,), str(gemm.c.buffer.dtype), "sums", scope="local")
        own = (tirx.address_of(get(data, index(0), 1)), index(4 * block.cols))
        before = own if gemm.last is None else self._c(row, col)
        taken = sequence(
            tirx.AllocBuffer(data), multiplied(before, own), *self._finished(block, data, rows, row, col)
        )
        return taken if gemm.last is None else tirx.IfThenElse(gemm.last, taken, multiplied(before, before))

    def _c(self, row: Expr, col: Expr) -> _Place:
        """Where element (row, col) of ``c`` lies."""
        c = self.gemm.c
        *leading, first_row, first_col = c.start
        place = (*leading, first_row + row, first_col + col)
        return self.memory.address(c.buffer, place), self.memory.pitch(c.buffer, len(place) - 2)

    def _multiplied(
        self, block: RegisterBlock, tiles: int, row: Expr, col: Expr, before: _Place, after: _Place
    ) -> tirx.Stmt:
        """The sums of a block, added to those at ``before``, in ``after``."""
        numbers = (
            *self._rows_of_a(row),
            *self._columns_of_b(col),
            *(part for address, pitch in (before, after) for part in (address, _wide(pitch))),
            *(_wide(self.steps), index(self.gemm.clear)),
        )
        return self.form.multiply(tiles, block.cols // TILE, self.past, *numbers)

    def _rows_of_a(self, row: Expr) -> tuple[Expr, ...]:
        """Where the rows of ``a`` from ``row`` on lie, and where else, if they do, and how far steps are
        apart."""
        gemm = self.gemm
        places = []
        for matrix in (gemm.a, gemm.a_place or gemm.a):
            buffer = matrix.region.buffer
            places += [self.memory.address(buffer, element(matrix, row, index(0)))]
            places += [_wide(self.memory.pitch(buffer, matrix.row))]
        in_place = index(0) if gemm.in_place is None else index(gemm.in_place)
        return (*places, in_place, _wide(4 * self.words))

    def _columns_of_b(self, col: Expr) -> tuple[Expr, ...]:
        """Where the columns of ``b`` from ``col`` on lie, how far rows, steps and tiles are apart."""
        b, memory = self.gemm.b, self.memory
        pitch = memory.pitch(b.region.buffer, b.row)
        across = pitch if b.panel is None else memory.pitch(b.region.buffer, b.panel)
        place = memory.address(b.region.buffer, element(b, index(0), col))
        return (place, _wide(pitch), _wide(pitch * self.words), _wide(across))

    def _finished(
        self, block: RegisterBlock, data: Var | None, rows: Expr, row: Expr, col: Expr
    ) -> list[tirx.Stmt]:
        """The epilogue of the rows that count, one by one; nothing without one."""
        one = replace(block, rows=1)
        if not self.gemm.body:
            return []
        return [loop(rows, lambda r: self._row(one, data, r, row + r, col))]

    def _row(self, block: RegisterBlock, data: Var | None, r: Expr, row: Expr, col: Expr) -> tirx.Stmt:
        """The epilogue of row ``r`` of the sums in ``data``, which is ``row`` of the product."""
        sums = tirx.decl_buffer((block.cols,), str(self.gemm.c.buffer.dtype), "acc", scope="local")
        parts: list[tirx.Stmt] = [tirx.AllocBuffer(sums)]
        if data is not None:
            parts.append(
                unrolled(
                    block.vectors,
                    lambda v: put(sums, lane(block, index(0), v), get(data, lane(block, r, v), block.lanes)),
                )
            )
        done = self.epilogue.emit(row, col, block, sums, True)
        return sequence(*parts, *([] if done is None else [done]))


def _side_by_side(body: Blocks, block: RegisterBlock, start: int, count: int) -> tirx.Stmt:
    return loop(count, lambda j: body(block, j * block.cols + start))


def _where(condition: Expr, then: tirx.Stmt, orelse: tirx.Stmt | None = None) -> tirx.Stmt | None:
    """A branch; what is decided already is none."""
    known = int_value(condition)
    if known is None:
        return tirx.IfThenElse(condition, then, orelse)
    return then if known else orelse


def _wide(value: Expr | int) -> Expr:
    """A number of 64 bits."""
    return tirx.const(value, "int64") if isinstance(value, int) else tirx.Cast("int64", value)
