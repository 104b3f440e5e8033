"""Loops over elements go as far as a test in them lets them do anything.

parallel(32, 128): if i < 16: ...  ->  parallel(16, 128): ...
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import all_of, conjuncts, int_value, uncast
from tilec.ir.nodes import Block, If, Parallel, Stmt
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from tvm.ir import Expr


class CutLoops(BlockPass):
    """In: any statements. Out: no Parallel loop has, around all that it does, a test that one of its
    variables is below a number: it has that many iterations. Loops whose schedule the author gives stay."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops cut."""
        return [_cut(stmt) for stmt in block]


def _cut(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Parallel) or stmt.hints.given or len(stmt.body) != 1:
        return stmt
    (inner,) = stmt.body
    if not isinstance(inner, If) or inner.orelse:
        return stmt
    extents, left = list(stmt.extents), []
    for test in conjuncts(inner.cond):
        axis, most = _bound(test, stmt)
        if axis is None:
            left.append(test)
        else:
            extents[axis] = min(int_value(extents[axis]) or 0, most)
    if len(left) == len(conjuncts(inner.cond)):
        return stmt
    body = (replace(inner, cond=all_of(left)),) if left else inner.then
    return replace(stmt, extents=tuple(extents), body=body)


def _bound(test: Expr, loop: Parallel) -> tuple[int | None, int]:
    """The variable of a loop, as a position, that a test keeps below a positive number, and that number; None
    for other tests, and where the extent is a run-time value."""
    if not isinstance(test, (tirx.LT, tirx.LE)):
        return None, 0
    var, number = uncast(test.a), int_value(test.b)
    axis = next((at for at, each in enumerate(loop.vars) if each.same_as(var)), None)
    if axis is None or number is None or int_value(loop.extents[axis]) is None:
        return None, 0
    most = number + isinstance(test, tirx.LE)
    return (axis, most) if most > 0 else (None, 0)
