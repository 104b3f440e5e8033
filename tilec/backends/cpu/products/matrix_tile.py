"""A register block of two by two sums a vector, for the instructions in `matrix_forms`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import element
from tilec.backends.cpu.products.register_tile import RegisterTile, lane
from tilec.backends.cpu.products.tir import get, index, put, sequence, unrolled
from tilec.lowering.math.vectors import literal, with_lanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.products.matrix_forms import MatrixForm

_LANES = 4


class MatrixTile(RegisterTile):
    """As `RegisterTile`; pairs of rows and of columns share a vector until K is done. A row without a
    neighbour stands in for it."""

    form: MatrixForm
    sums: Var

    def multiply(self) -> tirx.Stmt:
        """Products into vectors of two by two sums, those into the accumulators."""
        self.sums = tirx.decl_buffer((self._high * self._wide * _LANES,), self.dtype, "sums", scope="local")
        zero = literal(0, self.dtype, _LANES)
        return sequence(
            tirx.AllocBuffer(self.sums),
            self._each_pair(lambda r, c: put(self.sums, self._at(r, c), zero)),
            *self._static_depth(),
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
        """``body(row pair, column pair)`` for every vector of sums, unrolled."""
        return unrolled(self._high, lambda r: unrolled(self._wide, lambda c: body(r, c)))

    def _at(self, r: Expr, c: Expr) -> Expr:
        return (r * self._wide + c) * _LANES

    def _steps(self, k: Expr, count: int) -> tirx.Stmt:
        """``count`` words from ``k`` on; those of ``a`` are read two at a time."""
        parts = []
        for first in range(0, count, 2):
            together = min(2, count - first)
            parts += [self._step(k + first, number, together) for number in range(together)]
        return sequence(*parts)

    def _step(self, k: Expr, number: int, together: int) -> tirx.Stmt:
        """The word ``number`` of ``together`` from ``k`` on."""

        def multiplied(r: Expr, c: Expr) -> tirx.Stmt:
            place = element(self.gemm.b, k + number, self.col + c * 2)
            columns = self.memory.load(self.gemm.b.region.buffer, place, 2)
            old = get(self.sums, self._at(r, c), _LANES)
            rows = self._pair(r, k, number, together)
            return put(self.sums, self._at(r, c), self.form.multiplied(rows, columns, old))

        return self._each_pair(multiplied)

    def _pair(self, r: Expr, k: Expr, number: int, together: int) -> Expr:
        """One word of both rows of a pair."""
        rows = [self._words(r * 2 + low, k, together) for low in (0, min(1, self.block.rows - 1))]
        return tirx.Shuffle(rows, [index(number), index(number + together)])

    def _words(self, r: Expr, k: Expr, count: int) -> Expr:
        place = element(self.gemm.a, self.row + r, k * self.form.group)
        return self.memory.word(self.gemm.a.region.buffer, place, with_lanes(self.form.word, count))

    def _added(self, r: Expr) -> tirx.Stmt:
        """The sums of a pair of rows, each row by itself, onto the accumulators."""
        rows = range(min(2, self.block.rows))
        return sequence(*(unrolled(self.block.vectors, partial(self._row_added, r, low)) for low in rows))

    def _row_added(self, r: Expr, low: int, v: Expr) -> tirx.Stmt:
        pairs = [get(self.sums, self._at(r, v * 2 + number), _LANES) for number in range(2)]
        sums = tirx.Shuffle(pairs, [index(place + 2 * low) for place in (0, 1, 4, 5)])
        at = lane(self.block, r * 2 + low, v)
        return put(self.data, at, get(self.data, at, _LANES) + sums)
