"""Names that nothing reads any more."""

from __future__ import annotations

from collections.abc import Container

from tvm.ir import Var

from tilec.ir.exprs import variables_of
from tilec.ir.nodes import Bind, Block, Stmt, walk
from tilec.ir.traits import Rewriter, expressions


def without_idle(body: Block, names: Container[Var]) -> Block:
    """A block without those of ``names`` that nobody reads, nor what only they read of each other."""
    used = set(variables_of(expr for stmt in walk(body) for expr in expressions(stmt)))
    idle = {stmt.var for stmt in walk(body) if isinstance(stmt, Bind) and stmt.var in names} - used
    return without_idle(_Without(idle).block(body), names) if idle else body


class _Without(Rewriter):
    """Statements without some names."""

    def __init__(self, names: Container[Var]) -> None:
        super().__init__()
        self._names = names

    def stmts(self, stmt: Stmt) -> Block:
        """Nothing in place of such a name."""
        idle = isinstance(stmt, Bind) and stmt.var in self._names
        return () if idle else super().stmts(stmt)
