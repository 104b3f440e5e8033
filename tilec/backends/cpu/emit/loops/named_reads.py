"""Names of places that lie where an element says: ``e = first[r] + i``.

Proofs and addresses know index arithmetic under a name as long as nothing is read in it. What is read there
of one place for all lanes gets a name of its own, so that the rest is arithmetic, and lanes lie side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import dtype_of, loads, transform, uses
from tilec.ir.nodes import Bind
from tilec.ir.traits import Rewriter
from tilec.lowering.analysis.accumulations import dependents

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Stmt


def with_named_reads(body: Block, lane: Var) -> Block:
    """``body`` with reads in names that move with ``lane`` in front of these, where they do not move."""
    return _NamedReads(dependents(body, lane)).block(body)


class _NamedReads(Rewriter):
    def __init__(self, moving: tuple[Var, ...]) -> None:
        super().__init__()
        self._moving = moving

    def stmts(self, stmt: Stmt) -> Block:
        """A statement, in front of a name what it reads."""
        stmt = self.stmt(stmt)
        if not isinstance(stmt, Bind) or not dtype_of(stmt.var).startswith("int"):
            return (stmt,)
        if not uses(stmt.value, self._moving) or any(uses(load, self._moving) for load in loads(stmt.value)):
            return (stmt,)
        names: list[Bind] = []
        value = transform(stmt.value, lambda node: _named(node, names))
        return (*names, Bind(stmt.var, value, loc=stmt.loc))


def _named(node: Expr, names: list[Bind]) -> Expr | None:
    """A new name for a read, which goes to ``names``; None for what is no read."""
    if not isinstance(node, TensorLoad):
        return None
    names.append(Bind(tirx.Var(f"{node.source.name}_read", dtype_of(node)), node))
    return names[-1].var
