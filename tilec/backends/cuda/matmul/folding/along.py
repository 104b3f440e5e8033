"""The two launches of a product whose second operand, stored along K, comes in groups of its rows.

A contiguous matrix (N, K) of 16 bits is also a matrix (N / 8, 8 K) whose rows TMA takes: the r-th row of a
group begins r K elements into it, at most seven behind a place where boxes may start. Rows with the same r
make every eighth column of the result, and nothing is missing of it: the epilogue runs where it always does.

The first operand is moved as far behind zeros for each r. Its zeros do not make up for what a box brings of
neighbouring rows, as 0 * inf is no number. Behind a row a tensor map that ends with it has zeros; the fewer
than eight elements in front are cleared in shared memory, once a tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.whole_lines import in_whole_lines, num_pieces
from tilec.backends.cuda.matmul.folding.base import Folding
from tilec.backends.cuda.matmul.nodes import RowsView
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import dtype_of, inlined, loads, substitute, transform, uses
from tilec.ir.nodes import Block, Copy, Launch, Parallel, Region, Stmt, Store
from tilec.lowering.passes.base import rewrite_blocks
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.analysis.facts import Facts


@dataclass(frozen=True, eq=False)
class FoldedAlong(Folding):
    """Its epilogue runs at the columns of the result that rows of groups make. ``facts``: of its launch."""

    facts: Facts

    # ---- sizes ----

    @property
    def _groups(self) -> Expr:
        """Groups of rows, the last one perhaps not whole."""
        return num_pieces(self.b.src.buffer.shape[0], self.fold)

    def _further(self, part: Expr) -> Expr:
        """How far that is behind a place where boxes may start."""
        return part * (self.depth % self.fold) % self.fold

    @property
    def _reach(self) -> Expr:
        """Elements from such a place to the end of a row, at most."""
        return self.depth + (self.fold - 1)

    # ---- memory ----

    @cached_property
    def operand(self) -> Var:
        """The first operand behind as many zeros as each row of a group is behind a place for boxes."""
        source = self.a.src.buffer
        return in_whole_lines(f"{source.name}_folded", source, (self.fold, self._rows, self._reach))

    @property
    def workspace(self) -> tuple[Var, ...]:
        """The first operand."""
        return (self.operand,)

    # ---- launches ----

    @property
    def launches(self) -> tuple[Launch, ...]:
        """One that moves the first operand, one that multiplies."""
        return self.ordering, self.multiplying

    def _element(self, row: Expr, part: Expr, place: Expr) -> Expr:
        """The first operand moved, between zeros."""
        source = self.a.src.buffer
        k = place - self._further(part)
        inside = tirx.And(k >= 0, k < self.depth)
        return tirx.if_then_else(inside, tirx.BufferLoad(source, [row, k]), tirx.const(0, str(source.dtype)))

    @property
    def multiplying(self) -> Launch:
        """Results of each row of a group. Unfit where the epilogue hangs on where in a tile a column is."""
        part = tirx.Var("part", dtype_of(self.depth))
        row, group = self._tile(self.launch.block_vars)
        loop = self._loop(num_pieces(self._reach, self._step), self._loads(part, row, group))
        view = RowsView(self.view, self.b.src.buffer, part, self._further(part))
        behind = [self._at_columns(stmt, part) for stmt in self.found.tail]
        return self._of_parts(part, self._groups, (view,), loop, behind)

    def _loads(self, part: Expr, row: Expr, group: Expr) -> tuple[Copy, Copy]:
        """Those of both operands for a tile of a row of groups."""
        start = self._first(part) - self._further(part) + self.found.loop.var * self._step
        b = Region(self.view, (group, start), self.b.src.extent)
        return self._load_a(part, row), replace(self.b, src=b)

    def _done(self, first: str) -> str:
        return f"moves {first} as far as each row of a group is behind one, and each has tiles of its own"

    # ---- the epilogue ----

    def _at_columns(self, loop: Parallel, part: Var) -> Stmt:
        """A loop over results at the columns where those of a part belong."""
        fragments = {alloc.buffer for alloc in self.found.fragments}
        moved = map_stmt(loop, lambda expr: self._moved(expr, loop, part, fragments))

        def kept(block: Block) -> list[Stmt]:
            return [
                replace(stmt, indices=loop.vars)
                if isinstance(stmt, Store) and stmt.buffer in fragments
                else stmt
                for stmt in block
            ]

        return rewrite_blocks((moved,), kept)[0]

    def _moved(self, expr: Expr, loop: Parallel, part: Var, fragments: set[Var]) -> Expr:
        block, (_, j) = self.launch.block_vars[self.column_axis], loop.vars
        column = tirx.Var("column", dtype_of(j))
        first = block * self._tile_columns
        group = (first + j) * self.fold + part

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad) and node.source in fragments:
                return node
            is_place = uses(node, (block, j)) and dtype_of(node).startswith(("int", "bool"))
            if not is_place or _reads(node, fragments):
                return None
            at = self.facts.simplify(substitute(node, {j: column - first}))
            if uses(at, (block,)):
                raise Unfit("its epilogue hangs on where in its tile a column is", loop)
            return substitute(at, {column: group})

        return transform(inlined(expr, self.found.names), visit)


def _reads(expr: Expr, fragments: set[Var]) -> list[TensorLoad]:
    return [load for load in loads(expr) if load.source in fragments]
