"""The three launches of a product whose second operand, stored across K, comes in groups of its rows.

A contiguous matrix (K, N) of 16 bits is also a matrix (K / 8, 8 N) whose rows TMA takes: the r-th row of a
group begins r N elements into it, at most seven behind a place where boxes may start. Rows with the same r
make a product of their own with every eighth column of the first operand. The columns of its result lie as
many places further, and the results of all r are added where they belong. Each element of the matrix comes
once; what comes with it of the neighbouring rows makes columns that nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.whole_lines import in_whole_lines, num_pieces
from tilec.backends.cuda.matmul.folding.base import Folding
from tilec.backends.cuda.matmul.nodes import MatrixView
from tilec.ir.exprs import cast_to, dtype_of
from tilec.ir.nodes import Bind, Block, Copy, For, Launch, Parallel, Region, Store
from tilec.ir.schedule import Schedule
from tilec.lowering.parted import Parted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Folded(Folding):
    """Its sums pass through the workspace, and a launch behind adds them."""

    # ---- sizes ----

    @property
    def _columns(self) -> Expr:
        return self.b.src.buffer.shape[1]

    @property
    def _groups(self) -> Expr:
        """Whole groups."""
        return self.depth // tirx.const(self.fold, dtype_of(self.depth))

    @property
    def _reach(self) -> Expr:
        """Columns of the result of a row of a group, which lie up to a group's rows less one further."""
        return self._columns + (self.fold - 1)

    # ---- memory ----

    @cached_property
    def operand(self) -> Var:
        """The first operand: for each row of a group the columns that it multiplies, zeros behind them."""
        source = self.a.src.buffer
        return in_whole_lines(f"{source.name}_folded", source, (self.fold, self._rows, self._groups))

    @cached_property
    def parts(self) -> Var:
        """The sums of each row of a group."""
        sums = self.found.gemm.c.buffer
        return in_whole_lines(f"{sums.name}_parts", sums, (self.fold, self._rows, self._reach))

    @property
    def workspace(self) -> tuple[Var, ...]:
        """The first operand, and sums."""
        return self.operand, self.parts

    # ---- the launch in front ----

    @property
    def launches(self) -> tuple[Launch, ...]:
        """One that orders columns, one that multiplies, one that adds."""
        return self.ordering, self.multiplying, self.adding

    def _element(self, row: Expr, part: Expr, place: Expr) -> Expr:
        """The columns of the first operand in the order of the rows of groups."""
        source = self.a.src.buffer
        element = tirx.BufferLoad(source, [row, place * self.fold + part])
        return tirx.if_then_else(place < self._groups, element, tirx.const(0, str(source.dtype)))

    # ---- the launch that multiplies ----

    @property
    def multiplying(self) -> Launch:
        """Sums of each row of a group."""
        found, part = self.found, tirx.Var("part", dtype_of(self._columns))
        place = (part, *self._tile(self.launch.block_vars))
        loop = self._loop(num_pieces(self._groups, self._step), self._loads(place))
        stored = Copy(found.gemm.c, Region(self.parts, place, (tirx.const(1, "int32"), *found.gemm.c.extent)))
        views = (MatrixView(self.view, self.b.src.buffer),)
        return self._of_parts(part, self._reach, views, loop, (stored,))

    def _loads(self, place: tuple[Expr, Expr, Expr]) -> tuple[Copy, Copy]:
        """Those of both operands for a tile of a row of groups."""
        part, row, column = place
        first = self._first(part)
        start = (self.found.loop.var * self._step, first - first % self.fold + column)
        b = Region(self.view, start, self.b.src.extent)
        return self._load_a(part, row), replace(self.b, src=b)

    def _done(self, first: str) -> str:
        return f"brings {first} into their order, one behind adds the sums of each row of a group"

    # ---- the launch that adds ----

    @property
    def adding(self) -> Launch:
        """Adds the sums of all rows of groups and products of the rows behind the last whole one."""
        found, parts = self.found, tirx.const(self.fold, dtype_of(self._columns))
        made = Parted(self.launch, found.loop, found.gemm.c, found.tail[0], found.names, parts, self)
        return made.adding(Schedule(pdl=True), self._behind_groups)

    @property
    def buffer(self) -> Var:
        """Of the parts of sums (`tilec.lowering.parted.Places`)."""
        return self.parts

    def of(self, part: Expr, block: Sequence[Var]) -> tuple[Block, tuple[Expr, Expr, Expr]]:
        """The first element of a tile's part."""
        further = tirx.Var("further", dtype_of(part))
        row, column = self._tile(block)
        return (Bind(further, self._first(part) % self.fold),), (part, row, column + further)

    def _behind_groups(self, held: Var, block: Sequence[Var], first: Expr) -> Block:
        """Products of the rows that make no group, for the rows of a tile from ``first`` on."""
        k = tirx.Var("k", dtype_of(self.depth))
        i, j = (tirx.Var(name, "int32") for name in ("i", "j"))
        row, column = self._tile(block)
        a = tirx.BufferLoad(self.a.src.buffer, [row + first + i, k])
        b = tirx.BufferLoad(self.b.src.buffer, [k, column + j])
        dtype = str(held.dtype)
        value = tirx.BufferLoad(held, [i, j]) + cast_to(a, dtype) * cast_to(b, dtype)
        loop = Parallel((i, j), tuple(held.shape), (Store(held, (i, j), value),))
        one = tirx.const(1, dtype_of(self.depth))
        return (For("serial", k, self._groups * self.fold, self.depth, one, (loop,)),)
