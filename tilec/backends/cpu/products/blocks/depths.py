"""How deep the rows of a product are whose operand may end in zeros: those that a mask has hidden.

The powers of hidden scores are zeros as a rule, which no pass proves: a mask may be a number that is merely
small, and a row without a visible score has NaN. So what lies more than a reach behind its row is looked at
when the product runs, once for the rows of a register block, and left out where it is 0 in all of them. Zeros
times infinities and NaN are NaN: where ``b`` has such, nothing is left out.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm, element
from tilec.backends.cpu.products.forms.word_forms import group_of, takes_any, word_form
from tilec.backends.cpu.products.tir import get, index, lanes_total, loop, put, sequence, trips_of
from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.math.vectors import literal, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.products.blocks.register_tile import Memory

#: Words that vectors are looked at by, their bits without the sign of the first float in them, and of all.
_WORD, _FIRST = "int32", 0x7FFFFFFF
_ALL = {4: 0x7FFFFFFF, 2: 0x7FFF7FFF}
#: The least such word whose first float is infinite or NaN.
_INFINITE = {"float32": 0x7F800000, "bfloat16": 0x7F800000, "float16": 0x7C000000}


def has_depths(gemm: MicroGemm) -> bool:
    """Whether rows of ``gemm`` may differ in depth: those of floats that come in whole vectors, as those of
    ``b`` do, by instructions that take any K."""
    if not takes_any(gemm.block.form) or gemm.band is not None or not gemm.b.side_by_side:
        return False
    if str(gemm.a.region.buffer.dtype) not in _INFINITE or _kind(gemm) not in _INFINITE:
        return False
    is_whole = gemm.b.panel is not None or int_value(gemm.columns) == int_value(gemm.b.width)
    columns = static(gemm.a.region.extent[gemm.a.col])
    width = static(gemm.b.region.extent[gemm.b.col])
    return is_whole and columns % _elements(gemm, gemm.a) == 0 and width % _elements(gemm, gemm.b) == 0


def _elements(gemm: MicroGemm, matrix: Matrix) -> int:
    """Elements of an operand in a vector."""
    return gemm.block.lanes * element_bytes(_WORD) // element_bytes(str(matrix.region.buffer.dtype))


def _kind(gemm: MicroGemm) -> str:
    """The type of the floats of ``b``, which words hold where the form has such."""
    matrix = gemm.b if word_form(gemm.block.form) is None else gemm.a
    return str(matrix.region.buffer.dtype)


class Depths:
    """The depths of all blocks of rows of ``gemm``, whose elements more than ``reach`` behind their row may
    be zeros."""

    def __init__(self, gemm: MicroGemm, reach: Expr, memory: Memory) -> None:
        self.gemm = gemm
        self.reach = reach
        self.memory = memory
        self.rows = gemm.block.rows
        self.lanes = gemm.block.lanes
        self.size = _elements(gemm, gemm.a)
        self.count = static(gemm.a.region.extent[gemm.a.col]) // self.size
        most = -(-static(gemm.a.region.extent[gemm.a.row]) // self.rows)
        self.table = tirx.decl_buffer((most,), "int32", "depths", scope="local")
        self.finite = tirx.Var("finite", "bool")

    def at(self, row: Expr) -> Expr:
        """The depth of the block that ``row`` is in."""
        return get(self.table, tirx.truncdiv(row, index(self.rows)), 1)

    def fill(self) -> tirx.Stmt:
        """The statements that make the table."""
        blocks = tirx.truncdiv(trips_of(self.gemm.rows) + (self.rows - 1), index(self.rows))
        return sequence(tirx.AllocBuffer(self.table), *self._looked_at_b(), loop(blocks, self._block))

    def _looked_at_b(self) -> list[tirx.Stmt]:
        """Whether ``b`` is finite; where the first block of rows sees all, it is not looked at."""
        group, size = group_of(self.gemm.block.form), _elements(self.gemm, self.gemm.b)
        steps = tirx.truncdiv(trips_of(self.gemm.depth) + (group - 1), index(group))
        vectors = tirx.truncdiv(trips_of(self.gemm.columns) + (size - 1), index(size))
        largest = tirx.decl_buffer((self.lanes,), _WORD, "largest", scope="local")
        zero = index(0)

        def vector(k: Expr, number: Expr) -> tirx.Stmt:
            word = self._vector(self.gemm.b, k, number * size)
            found = get(largest, zero, self.lanes)
            for magnitude in self._magnitudes(word):
                found = tirx.max(found, magnitude)
            return put(largest, zero, found)

        hides = self._seen(zero) < self.count
        return [
            tirx.AllocBuffer(largest),
            put(largest, zero, literal(0, _WORD, self.lanes)),
            tirx.IfThenElse(hides, loop(steps, lambda k: loop(vectors, lambda v: vector(k, v))), None),
            tirx.Bind(
                self.finite,
                lanes_total(get(largest, zero, self.lanes), tirx.max) < _INFINITE[_kind(self.gemm)],
            ),
        ]

    def _magnitudes(self, words: Expr) -> list[Expr]:
        """Words whose first float is each of those that ``words`` hold, without a sign."""
        parts = [words] if _kind(self.gemm) == "float32" else [words, words << literal(16, _WORD, self.lanes)]
        return [part & literal(_FIRST, _WORD, self.lanes) for part in parts]

    def _vector(self, matrix: Matrix, row: Expr, col: Expr) -> Expr:
        """The words of a vector of an operand."""
        place = element(matrix, row, col)
        return self.memory.word(matrix.region.buffer, place, with_lanes(_WORD, self.lanes))

    def _block(self, number: Expr) -> tirx.Stmt:
        """The depth of one block: up to the first vector of which all is hidden, where those are zeros."""
        seen = tirx.Var("seen", "int32")
        bits = tirx.decl_buffer((self.lanes,), _WORD, "bits", scope="local")
        zero, last = index(0), trips_of(self.gemm.rows) - 1

        def vector(row: Expr, v: Expr) -> tirx.Stmt:
            word = self._vector(self.gemm.a, tirx.min(number * self.rows + row, last), v * self.size)
            return put(bits, zero, get(bits, zero, self.lanes) | word)

        def row_of(row: Expr) -> tirx.Stmt:
            return loop(index(self.count) - seen, lambda v: vector(row, seen + v))

        return sequence(
            tirx.AllocBuffer(bits),
            put(bits, zero, literal(0, _WORD, self.lanes)),
            tirx.Bind(seen, self._seen(number)),
            loop(self.rows, row_of),
            put(self.table, number, self._depth(get(bits, zero, self.lanes), seen * self.size)),
        )

    def _seen(self, number: Expr) -> Expr:
        """The vectors of a block of which its last row sees some."""
        dtype, most = dtype_of(self.reach), self.size * self.count
        end = self.reach + tirx.Cast(dtype, number * self.rows + self.rows)
        columns = tirx.min(tirx.max(end, tirx.const(0, dtype)), tirx.const(most, dtype))
        return tirx.truncdiv(index(columns) + (self.size - 1), index(self.size))

    def _depth(self, bits: Expr, end: Expr) -> Expr:
        """``end`` where no ``bits`` but signs are set and ``b`` is finite, else all there is."""
        depth = trips_of(self.gemm.depth)
        width = element_bytes(str(self.gemm.a.region.buffer.dtype))
        found = lanes_total(bits & literal(_ALL[width], _WORD, self.lanes), operator.or_)
        return tirx.Select(tirx.all(found == 0, self.finite), tirx.min(end, depth), depth)
