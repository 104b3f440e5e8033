"""A register block whose vectors run along K: for few rows and a ``b`` that has K side by side.

Every element of the block has a vector of partial sums, which are added up after the K loop. Nothing is
packed: with few rows that would take longer than the product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import element
from tilec.backends.cpu.products.register_tile import RegisterTile
from tilec.backends.cpu.products.tir import INDEX, get, index, loop, put, sequence, trips_of, unrolled
from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.nodes import Matrix


class AcrossTile(RegisterTile):
    """As `RegisterTile`, for the form "across": ``block.unroll`` is the length of the vectors along K."""

    def multiply(self) -> tirx.Stmt:
        """Whole vectors of K into partial sums, those into the accumulators, then what is left of K."""
        block, wide = self.block, self.block.unroll
        sums = tirx.decl_buffer((block.rows * block.cols * wide,), self.dtype, "sums", scope="local")
        zero = literal(0, self.dtype, wide)
        depth, trips = tirx.Var("depth", INDEX), tirx.Var("trips", INDEX)
        return sequence(
            tirx.Bind(depth, trips_of(self.gemm.depth)),
            tirx.Bind(trips, tirx.truncdiv(depth, index(wide))),
            tirx.AllocBuffer(sums),
            self._each(lambda at, r, c: put(sums, at * wide, zero)),
            loop(trips, lambda k: self._vectors(sums, k * wide)),
            self._each(lambda at, r, c: self._add(at, _total(get(sums, at * wide, wide)))),
            loop(depth - trips * wide, lambda k: self._rest(trips * wide + k)),
        )

    def _each(self, body: Callable[[Expr, Expr, Expr], tirx.Stmt]) -> tirx.Stmt:
        """``body(place, row, column)`` for every element of the block, unrolled."""
        cols = self.block.cols
        return unrolled(self.block.rows, lambda r: unrolled(cols, lambda c: body(r * cols + c, r, c)))

    def _vectors(self, sums: Var, k: Expr) -> tirx.Stmt:
        wide = self.block.unroll

        def multiplied(at: Expr, r: Expr, c: Expr) -> tirx.Stmt:
            old = get(sums, at * wide, wide)
            return put(
                sums, at * wide, self._multiply_add(self._row(r, k, wide), self._column(c, k, wide), old)
            )

        return self._each(multiplied)

    def _rest(self, k: Expr) -> tirx.Stmt:
        return self._each(lambda at, r, c: self._add(at, self._row(r, k, 1) * self._column(c, k, 1)))

    def _add(self, at: Expr, value: Expr) -> tirx.Stmt:
        return put(self.data, at, get(self.data, at, 1) + value)

    def _row(self, r: Expr, k: Expr, count: int) -> Expr:
        return self._along_k(self.gemm.a, element(self.gemm.a, self.row + r, k), count)

    def _column(self, c: Expr, k: Expr, count: int) -> Expr:
        return self._along_k(self.gemm.b, element(self.gemm.b, k, self.col + c), count)

    def _along_k(self, matrix: Matrix, place: tuple[Expr, ...], count: int) -> Expr:
        return convert(self.memory.load(matrix.region.buffer, place, count), self.dtype)


def _total(vector: Expr) -> Expr:
    """The sum of the lanes of a vector, halves first."""
    lanes = vector.ty.dtype.lanes
    while lanes > 1:
        lanes //= 2
        name = tirx.Var("v", dtype_of(vector))
        low, high = ([index(lane) for lane in range(start, start + lanes)] for start in (0, lanes))
        vector = tirx.Let(name, vector, tirx.Shuffle([name], low) + tirx.Shuffle([name], high))
    return vector
