"""What instructions with an offset add to each row of a product: the row's elements times the offset.

Such an instruction takes ``b`` with the offset added to every element; accumulators start that much lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import MicroGemm, element
from tilec.backends.cpu.products.forms.dot_forms import DotForm, dot, offset_word
from tilec.backends.cpu.products.tir import get, index, lanes_total, loop, put, sequence, trips_of
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal, spread, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.products.blocks.register_tile import Memory


class RowOffsets:
    """The offsets of all rows of ``gemm``, in ``table``, by vectors of ``lanes`` words of ``form``. The last
    word counts as a whole: it meets zeros of ``b``, to which the offset is added, too; not that of a band,
    which has zeros behind K. Where vectors of the product run along K (``across``) its form takes whole
    vectors alone."""

    def __init__(self, gemm: MicroGemm, memory: Memory, form: DotForm, lanes: int, across: bool) -> None:
        self.gemm = gemm
        self.memory = memory
        self.form = form
        self.lanes = lanes
        self.across = across
        most = static(gemm.a.region.extent[gemm.a.row])
        self.table = tirx.decl_buffer((most,), "int32", "row_offsets", scope="local")

    def fill(self) -> tirx.Stmt:
        """The statements that make the table."""
        return sequence(tirx.AllocBuffer(self.table), loop(trips_of(self.gemm.rows), self._row))

    def _row(self, r: Expr) -> tirx.Stmt:
        """Whole vectors of a row, then the elements of its other words one by one."""
        group = self.form.group
        wide = self.lanes * group
        depth = trips_of(self.gemm.depth)
        if self.gemm.band is None:
            depth = tirx.truncdiv(depth + (group - 1), index(group)) * group
        sums = tirx.decl_buffer((self.lanes,), "int32", "offsets", scope="local")
        trips, zero = tirx.truncdiv(depth, index(wide)), index(0)

        def vector(k: Expr) -> tirx.Stmt:
            place = element(self.gemm.a, r, k * wide)
            words = self.memory.word(self.gemm.a.region.buffer, place, with_lanes(self.form.word, self.lanes))
            offsets = spread(offset_word(self.form), self.lanes)
            return put(sums, zero, dot(self.form, words, offsets, get(sums, zero, self.lanes), self.lanes))

        parts = [
            tirx.AllocBuffer(sums),
            put(sums, zero, literal(0, "int32", self.lanes)),
            loop(trips, vector),
            put(self.table, r, lanes_total(get(sums, zero, self.lanes))),
        ]
        rest = [] if self.across else [loop(depth - trips * wide, lambda k: self._one(r, trips * wide + k))]
        return sequence(*parts, *rest)

    def _one(self, r: Expr, k: Expr) -> tirx.Stmt:
        """Element ``k`` of a row."""
        value = convert(self.memory.load(self.gemm.a.region.buffer, element(self.gemm.a, r, k)), "int32")
        return put(self.table, r, get(self.table, r, 1) + value * index(self.form.offset))
