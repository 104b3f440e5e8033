"""A register block of two by two sums a vector, for the instructions in `matrix_forms`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import element
from tilec.backends.cpu.products.blocks.register_tile import RegisterTile, lane
from tilec.backends.cpu.products.tir import get, index, put, sequence, unrolled
from tilec.lowering.math.vectors import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.nodes import Matrix
    from tilec.backends.cpu.products.forms.matrix_forms import MatrixForm

_LANES = 4


class MatrixTile(RegisterTile):
    """As `RegisterTile`; pairs of rows and of columns share a vector until K is done. Both operands are in
    panels of words, ``a`` turned: its panels are pairs of rows. Beside a last row stands any value."""

    form: MatrixForm
    sums: Var

    def multiply(self) -> tirx.Stmt:
        """Products into vectors of two by two sums, those into the accumulators."""
        self.sums = tirx.decl_buffer((self._high * self._wide * _LANES,), self.dtype, "sums", scope="local")
        zero = literal(0, self.dtype, _LANES)
        return sequence(
            tirx.AllocBuffer(self.sums),
            self._each_pair(lambda r, c: put(self.sums, self._at(r, c), zero)),
            *self._static_depth(self._words_from),
            unrolled(self._high, self._added),
        )

    @property
    def _high(self) -> int:
        """Pairs of rows."""
        return -(-self.block.rows // 2)

    @property
    def _wide(self) -> int:
        """Pairs of columns."""
        return self.block.cols // 2

    def _each_pair(self, body: Callable[[Expr, Expr], tirx.Stmt]) -> tirx.Stmt:
        """``body(row pair, column pair)`` for every vector of sums, unrolled; rows come innermost, so that
        one vector of ``b`` is at hand at a time."""
        return unrolled(self._wide, lambda c: unrolled(self._high, lambda r: body(r, c)))

    def _at(self, r: Expr, c: Expr) -> Expr:
        return (r * self._wide + c) * _LANES

    def _words_from(self, k: Expr, count: int) -> tirx.Stmt:
        """``count`` words from ``k`` on."""
        return sequence(*(self._each_pair(partial(self._multiplied, k + number)) for number in range(count)))

    def _multiplied(self, k: Expr, r: Expr, c: Expr) -> tirx.Stmt:
        """Word ``k`` of a pair of rows by that of a pair of columns."""
        rows, columns = (
            self._pair(self.gemm.a, k, self.row + r * 2),
            self._pair(self.gemm.b, k, self.col + c * 2),
        )
        old = get(self.sums, self._at(r, c), _LANES)
        return put(self.sums, self._at(r, c), self.form.multiplied(rows, columns, old))

    def _pair(self, words: Matrix, k: Expr, first: Expr) -> Expr:
        """Word ``k`` of two neighbours in a panel."""
        return self.memory.load(words.region.buffer, element(words, k, first), 2)

    def _added(self, r: Expr) -> tirx.Stmt:
        """The sums of a pair of rows, each row by itself, onto the accumulators."""
        rows = range(min(2, self.block.rows))
        return sequence(*(unrolled(self.block.vectors, partial(self._row_added, r, low)) for low in rows))

    def _row_added(self, r: Expr, low: int, v: Expr) -> tirx.Stmt:
        pairs = [get(self.sums, self._at(r, v * 2 + number), _LANES) for number in range(2)]
        sums = tirx.Shuffle(pairs, [index(place + 2 * low) for place in (0, 1, 4, 5)])
        at = lane(self.block, r * 2 + low, v)
        return put(self.data, at, get(self.data, at, _LANES) + sums)
