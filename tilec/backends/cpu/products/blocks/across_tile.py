"""A register block whose vectors run along K: for few rows and a ``b`` that has K side by side.

Every element of the block has a vector of partial sums, which are added up after the K loop. Nothing is
packed: with few rows that would take longer than the product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import element
from tilec.backends.cpu.products.blocks.register_tile import AHEAD, RegisterTile
from tilec.backends.cpu.products.blocks.totals import totals_of
from tilec.backends.cpu.products.forms.dot_forms import add_offset, dot
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.tir import (
    FIRST,
    INDEX,
    SECOND,
    get,
    index,
    kept_loop,
    loop,
    prefetch,
    put,
    sequence,
    trips_of,
    unrolled,
)
from tilec.ir.nodes import is_global
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal, with_lanes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.nodes import Matrix
    from tilec.backends.cpu.products.forms.dot_forms import DotForm


class AcrossTile(RegisterTile):
    """As `RegisterTile`, for the form "across": ``block.unroll`` elements along K are a vector; a trip takes
    as many of a column as are converted together."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.dot = word_form(self.block.along)
        self.wide = self.block.unroll
        self.sums_wide = self.wide // (1 if self.dot is None else self.dot.group)
        if self.dot is None:
            self.wide = max(self.wide, self.memory.at_once(self.gemm.b.region.buffer))
        size = self.block.rows * self.block.cols * self.sums_wide
        self.sums = tirx.decl_buffer((size,), self.dtype, "sums", scope="local")

    def multiply(self) -> tirx.Stmt:
        """Whole vectors of K into partial sums, and what is left of K by lanes of one where these can be read
        alone; sums into the accumulators, and what is still left one by one."""
        zero = literal(0, self.dtype, self.sums_wide)
        depth, done = tirx.Var("depth", INDEX), tirx.Var("done", INDEX)
        trips = tirx.truncdiv(depth, index(self.wide))
        return sequence(
            tirx.Bind(depth, trips_of(self.gemm.depth)),
            tirx.AllocBuffer(self.sums),
            self._each(lambda at, r, c: put(self.sums, at * self.sums_wide, zero)),
            self._whole_vectors(trips),
            *self._narrow_vectors(trips * self.wide, depth, done),
            *self._ends(done, depth),
        )

    def _ends(self, done: Var, depth: Expr) -> list[tirx.Stmt]:
        """What is left of K behind ``done``, in front of adding up the lanes or behind it."""
        buffers = (self.gemm.a.region.buffer, self.gemm.b.region.buffer)
        if not all(self.memory.has_first(buffer) for buffer in buffers):
            return [*self._totals(), kept_loop(depth - done, lambda k: self._rest(done + k))]
        part = self._narrow(done, depth - done)
        return [tirx.IfThenElse(depth > done, part, None), *self._totals()]

    def _narrow_vectors(self, first: Expr, depth: Expr, done: Var) -> list[tirx.Stmt]:
        """Multiply-adds of as many elements as there are partial sums, behind those that words hold."""
        if self.wide == self.sums_wide:
            return [tirx.Bind(done, first)]
        trips = tirx.truncdiv(depth - first, index(self.sums_wide))
        step = kept_loop(trips, lambda k: self._narrow(first + k * self.sums_wide))
        return [step, tirx.Bind(done, first + trips * self.sums_wide)]

    def _each(self, body: Callable[[Expr, Expr, Expr], tirx.Stmt]) -> tirx.Stmt:
        """``body(place, row, column)`` for every element of the block, unrolled."""
        cols = self.block.cols
        return unrolled(self.block.rows, lambda r: unrolled(cols, lambda c: body(r * cols + c, r, c)))

    def _whole_vectors(self, trips: Expr) -> tirx.Stmt:
        """``wide`` elements of K so many times, behind asking for those of other columns."""

        def behind(asked: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
            return loop(trips, lambda k: sequence(asked(k * self.wide), self._vectors(k * self.wide)))

        if not self._runs_ahead():
            return loop(trips, lambda k: self._vectors(k * self.wide))
        return tirx.IfThenElse(self._is_large(), behind(self._later_columns), behind(self._next_columns))

    def _runs_ahead(self) -> bool:
        """Whether ``b`` is a tensor that a tile of several rows is multiplied by. Its columns are rows of
        memory, several at a time: prefetchers follow them no further than a page."""
        has_next = self.block.cols == self.gemm.block.cols
        return has_next and self._most_rows() > 1 and is_global(self.gemm.b.region.buffer)

    def _most_rows(self) -> int:
        return static(self.gemm.a.region.extent[self.gemm.a.row])

    def _next_columns(self, k: Expr) -> tirx.Stmt:
        """Asks for the next columns at ``k``: one block of rows for all of them, several for a half each."""
        cols = self.block.cols
        count = cols if self._most_rows() <= self.gemm.block.rows else cols // 2
        turn = tirx.truncmod(tirx.truncdiv(self.row, index(self.gemm.block.rows)), index(cols // count))
        return self._asked_of(k, self.col + (cols + turn * count), count, FIRST)

    def _later_columns(self, k: Expr) -> tirx.Stmt:
        """Asks for the columns at ``k`` that lie `AHEAD` bytes behind, the next ones at least."""
        b, cols = self.gemm.b, self.block.cols
        pitch = tirx.max(tirx.Cast(INDEX, self.memory.pitch(b.region.buffer, b.col)), index(1))
        first = self.col + tirx.max(tirx.truncdiv(index(AHEAD), pitch), index(cols))
        return self._asked_of(k, first, cols, SECOND)

    def _asked_of(self, k: Expr, first: Expr, count: int, near: int) -> tirx.Stmt:
        """Asks for what ``count`` columns have at ``k``."""
        b = self.gemm.b

        def asked(number: Expr) -> tirx.Stmt:
            place = element(b, k, first + number)
            return prefetch(self.memory.address(b.region.buffer, place), near=near)

        return unrolled(count, asked)

    def _vectors(self, k: Expr) -> tirx.Stmt:
        """``wide`` elements of K."""
        if self.wide == self.sums_wide:
            return self._narrow(k)
        if self.dot is None:
            return unrolled(self.block.cols, lambda c: self._converted(c, k))
        form = self.dot
        return self._each(lambda at, r, c: self._into(at, self._dot(form, at, r, c, k)))

    def _converted(self, c: Expr, k: Expr) -> tirx.Stmt:
        """``wide`` elements of K of one column, which are converted together."""
        held, count = tirx.decl_buffer((self.wide,), self.dtype, "column", scope="local"), self.sums_wide

        def multiplied(r: Expr, part: Expr) -> tirx.Stmt:
            at = r * self.block.cols + c
            row, column = self._row(r, k + part * count, count), get(held, part * count, count)
            return self._into(at, self._multiply_add(row, column, self._sums(at)))

        return sequence(
            tirx.AllocBuffer(held),
            put(held, index(0), self._column(c, k, self.wide)),
            unrolled(
                self.wide // count,
                lambda part: unrolled(self.block.rows, lambda r: multiplied(r, part)),
            ),
        )

    def _dot(self, form: DotForm, at: Expr, r: Expr, c: Expr, k: Expr) -> Expr:
        """The partial sums of an element and the products of the words from ``k`` on."""
        left = self._vector(form, self.gemm.a, element(self.gemm.a, self.row + r, k))
        right = self._vector(form, self.gemm.b, element(self.gemm.b, k, self.col + c))
        return dot(form, left, add_offset(form, right), self._sums(at), self.sums_wide)

    def _vector(self, form: DotForm, matrix: Matrix, place: tuple[Expr, ...]) -> Expr:
        kind, buffer = with_lanes(form.word, self.sums_wide), matrix.region.buffer
        if form.holds(str(buffer.dtype)):
            return self.memory.word(buffer, place, kind)
        return tirx.reinterpret(kind, convert(self.memory.load(buffer, place, self.wide), form.stored))

    def _narrow(self, k: Expr, some: Expr | None = None) -> tirx.Stmt:
        """As many elements of K as there are partial sums, or ``some`` of them."""
        count = self.sums_wide

        def multiplied(at: Expr, r: Expr, c: Expr) -> tirx.Stmt:
            row, column = self._row(r, k, count, some), self._column(c, k, count, some)
            return self._into(at, self._multiply_add(row, column, self._sums(at)))

        return self._each(multiplied)

    def _sums(self, at: Expr) -> Expr:
        """The partial sums of an element."""
        return get(self.sums, at * self.sums_wide, self.sums_wide)

    def _into(self, at: Expr, sums: Expr) -> tirx.Stmt:
        return put(self.sums, at * self.sums_wide, sums)

    def _totals(self) -> list[tirx.Stmt]:
        """Adds the partial sums of as many elements at a time as have lanes in a vector of them."""
        parts: list[tirx.Stmt] = []
        count, done = self.block.rows * self.block.cols, 0
        while done < count:
            size = min(self.sums_wide, 1 << ((count - done).bit_length() - 1))
            vectors = [self._sums(index(at)) for at in range(done, done + size)]
            old = get(self.data, index(done), size)
            parts.append(put(self.data, index(done), old + totals_of(vectors, parts)))
            done += size
        return parts

    def _rest(self, k: Expr) -> tirx.Stmt:
        return self._each(lambda at, r, c: self._add(at, self._row(r, k, 1) * self._column(c, k, 1)))

    def _add(self, at: Expr, value: Expr) -> tirx.Stmt:
        return put(self.data, at, get(self.data, at, 1) + value)

    def _row(self, r: Expr, k: Expr, count: int, some: Expr | None = None) -> Expr:
        return self._along_k(self.gemm.a, element(self.gemm.a, self.row + r, k), count, some)

    def _column(self, c: Expr, k: Expr, count: int, some: Expr | None = None) -> Expr:
        return self._along_k(self.gemm.b, element(self.gemm.b, k, self.col + c), count, some)

    def _along_k(self, matrix: Matrix, place: tuple[Expr, ...], count: int, some: Expr | None) -> Expr:
        """``count`` elements along K, or ``some`` of them and zeros."""
        buffer = matrix.region.buffer
        if some is not None:
            return convert(self.memory.first(buffer, place, count, some), self.dtype)
        return convert(self.memory.load(buffer, place, count), self.dtype)
