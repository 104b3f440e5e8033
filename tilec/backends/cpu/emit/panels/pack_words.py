"""TIR of `PackWords`: neighbours along K become the elements of one word of 32 or 64 bits.

Where the source has columns side by side, ``group`` of its rows are interleaved. Where it has K side by side,
its words are already there and change places in square blocks, as in `transpose_panels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tvm import tirx

from tilec.backends.cpu.emit.panels.squares import named, transposed
from tilec.backends.cpu.emit.panels.store_to_panels import store_to_panels
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.nodes import PackWords, element
from tilec.backends.cpu.products.forms.dot_forms import add_offset
from tilec.backends.cpu.products.forms.word_forms import word_form
from tilec.backends.cpu.products.tir import index, loop, sequence, span, trips_of
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert, stored_type
from tilec.lowering.math.vectors import with_lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.products.forms.dot_forms import DotForm


@emit.register(PackWords)
def _(stmt: PackWords, ctx: LaneContext) -> tirx.Stmt:
    words = _Words(stmt, ctx)
    ctx.take(stmt, "vectors", f"words of {words.form.group} elements in vectors of {stmt.lanes}")
    if stmt.src.col == len(stmt.src.region.start) - 1:
        return words.interleaved()
    return words.transposed()


class _Words:
    """Emits the loops of one statement; ``depth`` counts words."""

    def __init__(self, stmt: PackWords, ctx: LaneContext) -> None:
        extent = stmt.src.region.extent
        self.stmt = stmt
        self.ctx = ctx
        self.form = cast("DotForm", word_form(stmt.form))
        panels = 1 if stmt.src.panel is None else static(extent[stmt.src.panel])
        rows = self._count(stmt.rows, static(extent[stmt.src.row]))
        group = self.form.group
        self.depth = rows // group if isinstance(rows, int) else tirx.truncdiv(rows, index(group))
        self.columns = self._count(stmt.columns, static(extent[stmt.src.col]) * panels)

    def _count(self, given: int | Expr | None, most: int) -> int | Expr:
        """Rows or columns to pack: what is ``given`` of all."""
        if given is None:
            return most
        return given if isinstance(given, int) else trips_of(self.ctx.value(given))

    def interleaved(self) -> tirx.Stmt:
        """Vectors along the columns, then columns that fill none, ``group`` rows at a time."""
        lanes, (vectors, rest) = self.stmt.lanes, self._vectors(self.columns)
        whole = vectors * lanes
        return _sequence(
            _nest(self.depth, vectors, lambda k, c: self._interleaved(k, c * lanes, lanes)),
            _nest(self.depth, rest, lambda k, c: self._interleaved(k, c + whole, 1)),
        )

    def _vectors(self, count: int | Expr) -> tuple[int | Expr, int | Expr]:
        """Whole vectors, and what is left."""
        if isinstance(count, int):
            return divmod(count, self.stmt.lanes)
        vectors = tirx.truncdiv(count, index(self.stmt.lanes))
        return vectors, count - vectors * self.stmt.lanes

    def _interleaved(self, k: Expr, col: Expr, lanes: int) -> tirx.Stmt:
        group = self.form.group
        rows = [self._elements(k * group + number, col, lanes) for number in range(group)]
        order = [number * lanes + lane for lane in range(lanes) for number in range(group)]
        mixed = tirx.Shuffle(rows, [index(place) for place in order])
        return self._write(k, col, self._as_words(mixed, lanes))

    def transposed(self) -> tirx.Stmt:
        """Square blocks of words, then the words that are left, one by one."""
        lanes = self.stmt.lanes
        (blocks, left), (vectors, rest) = self._vectors(self.depth), self._vectors(self.columns)
        deep, wide = blocks * lanes, vectors * lanes
        return _sequence(
            _nest(vectors, blocks, lambda c, k: self._block(k * lanes, c * lanes)),
            _nest(left, wide, lambda k, c: self._word(k + deep, c)),
            _nest(self.depth, rest, lambda k, c: self._word(k, c + wide)),
        )

    def _block(self, k: Expr, col: Expr) -> tirx.Stmt:
        lanes = self.stmt.lanes
        parts: list[tirx.Stmt] = []
        columns = [self._along_k(k, col + number, lanes) for number in range(lanes)]
        rows = transposed([named(value, parts) for value in columns], parts)
        parts += [self._write(k + number, col, row) for number, row in enumerate(rows)]
        return sequence(*parts)

    def _word(self, k: Expr, col: Expr) -> tirx.Stmt:
        return self._write(k, col, self._along_k(k, col, 1))

    def _along_k(self, k: Expr, col: Expr, count: int) -> Expr:
        """``count`` words of one column."""
        group = self.form.group
        return self._as_words(self._elements(k * group, col, count * group), count)

    def _elements(self, row: Expr, col: Expr, count: int) -> Expr:
        """``count`` elements from ``src[row, col]`` along its fastest axis, as words hold them."""
        storage = self.ctx.storage(self.stmt.src.region.buffer)
        place = storage.offset([self.ctx.value(part) for part in element(self.stmt.src, row, col)])
        raw = tirx.BufferLoad(storage.data, [span(place, count)])
        return convert(raw, stored_type(self.form.stored))

    def _as_words(self, value: Expr, count: int) -> Expr:
        kind = with_lanes(str(self.stmt.dst.buffer.dtype), count)
        return value if dtype_of(value) == kind else tirx.reinterpret(kind, value)

    def _write(self, k: Expr, col: Expr, words: Expr) -> tirx.Stmt:
        return store_to_panels(self.stmt.dst, k, col, add_offset(self.form, words), self.ctx)


def _nest(outer: int | Expr, inner: int | Expr, body: Callable[[Expr, Expr], tirx.Stmt]) -> tirx.Stmt | None:
    """``body`` in two loops; None where one is known to have no trip."""
    if 0 in (int_value(outer), int_value(inner)):
        return None
    return loop(outer, lambda x: loop(inner, lambda y: body(x, y)))


def _sequence(*parts: tirx.Stmt | None) -> tirx.Stmt:
    return sequence(*(part for part in parts if part is not None))
