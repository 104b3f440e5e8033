"""Statements at certain values of variables: what one trip of a loop becomes that is written out.

j = i // 2; s[j] = A[i] if i < 3 else 0    at i = 3    ->    s[1] = 0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import choice_of, dtype_of, int_value, loads, substitute, transform
from tilec.ir.nodes import Bind
from tilec.ir.traits import Rewriter

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, For, Stmt


def at_values(block: Block, values: dict[Var, Expr], analyzer: sym.Analyzer | None = None) -> Block:
    """A copy of ``block`` where variables have ``values``: its indices are simplified, choices that numbers
    decide are made, and names of numbers are these."""
    return _At(values, analyzer or sym.Analyzer()).block(copied(block))


def at_trip(loop: For, trip: int) -> Block:
    """A copy of what a loop does where its variable is ``trip``."""
    return at_values(loop.body, {loop.var: tirx.const(trip, dtype_of(loop.var))})


class _At(Rewriter):
    """Statements at certain values of variables, where conditions of numbers are decided."""

    def __init__(self, values: dict[Var, Expr], analyzer: sym.Analyzer) -> None:
        super().__init__()
        self._values, self._analyzer = dict(values), analyzer

    def stmts(self, stmt: Stmt) -> Block:
        """The statement, but for the name of a number."""
        made = self.stmt(stmt)
        if not isinstance(made, Bind) or not isinstance(made.value, tirx.IntImm):
            return (made,)
        self._values[made.var] = made.value
        return ()

    def expr(self, expr: Expr) -> Expr:
        """With the values, its indices simplified and its choices made."""
        return self._made(substitute(expr, self._values))

    def _made(self, expr: Expr) -> Expr:
        return transform(expr, self._node)

    def _node(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            indices = [self._analyzer.simplify(self._made(index)) for index in node.indices]
            return tirx.BufferLoad(node.source, indices)
        choice = choice_of(node)
        if choice is None:
            whole = dtype_of(node).startswith("int") and not _reads(node)
            return self._analyzer.simplify(node) if whole else None
        cond, then, other = choice
        decided = int_value(self._analyzer.simplify(cond)) if not _reads(cond) else None
        return None if decided is None else self._made(then if decided else other)

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """An element, its indices simplified."""
        return buffer, tuple(self._analyzer.simplify(index) for index in indices)


def _reads(expr: Expr) -> bool:
    return next(loads(expr), None) is not None
