"""Row-wise loops over one tile run row by row, so that a row stays in the first-level cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.ir.exprs import dtype_of, int_value, same, uses
from tilec.ir.nodes import Alloc, Block, Parallel, Stmt
from tilec.lowering.analysis.accesses import Access, accesses, commute, conflicts
from tilec.lowering.analysis.continues import without_continue
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass(frozen=True)
class FuseRows(BlockPass):
    """In: Parallel loops over rows and columns of small tiles, and over their row statistics. Out: neighbours
    whose rows depend on the same row alone are one Parallel over the rows, the columns inside. Only tiles of
    at most ``most_rows`` rows: statistics of more rows are better computed as vectors."""

    most_rows: int = 8

    def block(self, block: Block) -> list[Stmt]:
        """The block with row-wise loops fused."""
        done: list[Stmt] = []
        group: list[Parallel] = []
        for stmt in block:
            if isinstance(stmt, Parallel) and self._joins(group, stmt):
                group.append(stmt)
            elif group and _can_precede(stmt, group):
                done.append(stmt)
            else:
                done += _fused(group)
                group = [stmt] if isinstance(stmt, Parallel) and self._is_row_wise(stmt) else []
                done += [] if group else [stmt]
        return [*done, *_fused(group)]

    def _joins(self, group: Sequence[Parallel], loop: Parallel) -> bool:
        if not group or not self._is_row_wise(loop) or loop.extents[0] != group[0].extents[0]:
            return False
        return all(_keep_to_rows(earlier, loop) for earlier in group)

    def _is_row_wise(self, loop: Parallel) -> bool:
        rows = int_value(loop.extents[0])
        return len(loop.vars) <= 2 and rows is not None and 1 < rows <= self.most_rows


def _can_precede(stmt: Stmt, group: Sequence[Parallel]) -> bool:
    """Whether ``stmt`` may move before the loops of ``group``."""
    return isinstance(stmt, Alloc) and all(commute(loop, stmt) for loop in group)


def _keep_to_rows(first: Parallel, second: Parallel) -> bool:
    """Whether what both touch and one writes is, in both, of the iteration's own row."""
    if dtype_of(first.vars[0]) != dtype_of(second.vars[0]):
        return False
    mine = accesses(first.body)
    theirs = accesses(rename(second.body, {second.vars[0]: first.vars[0]}))
    shared = conflicts(mine, theirs)
    inner = (*first.vars[1:], *second.vars[1:])
    return all(
        row_axis([item for item in (*mine, *theirs) if item.buffer.same_as(buffer)], first.vars[0], inner)
        is not None
        for buffer in shared
    )


def row_axis(items: Sequence[Access], row: Var, inner: Sequence[Var]) -> int | None:
    """The axis whose index is one and the same expression of ``row`` in all accesses, moving with it one for
    one; None without such an axis."""
    for axis, index in enumerate(items[0].indices):
        if (
            _moves_with(index, row)
            and not uses(index, inner)
            and all(same(index, item.indices[axis]) for item in items)
        ):
            return axis
    return None


def _moves_with(index: Expr, row: Var) -> bool:
    if index.same_as(row):
        return True
    sides = (index.a, index.b) if type(index).__name__ == "Add" else ()
    return sum(side.same_as(row) for side in sides) == 1 and sum(uses(side, (row,)) for side in sides) == 1


def _fused(group: Sequence[Parallel]) -> list[Stmt]:
    """The loops of ``group`` as one over their rows; as they are where fewer than two have columns."""
    if sum(len(loop.vars) == 2 for loop in group) < 2:
        return list(group)
    first = group[0]
    row = first.vars[0]
    body = tuple(stmt for loop in group for stmt in _row_of(loop, row))
    return [replace(first, vars=(row,), extents=first.extents[:1], body=body)]


def _row_of(loop: Parallel, row: Var) -> Block:
    """What ``loop`` does for one row."""
    body = without_continue(rename(loop.body, {loop.vars[0]: row}))
    if len(loop.vars) == 1:
        return body
    return (replace(loop, vars=loop.vars[1:], extents=loop.extents[1:], body=body),)
