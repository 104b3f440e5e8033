"""Names for quotients by run-time values, in front of the statements that use them.

    for i: s[i] = A[q // n, q % n + i]    ->    d = q // n; for i: s[i] = A[d, q - d * n + i]

Compilers compute each once there, and not in every trip or branch that uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, loads, same, uses
from tilec.ir.nodes import Bind, Stmt, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.conditions import is_quotient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr, Var


class Quotients:
    """Quotients and remainders by run-time values that statements inside neither name nor read: ``binds``
    define them, equal ones once."""

    def __init__(self, inside: Iterable[Stmt]) -> None:
        self.binds: list[Bind] = []
        self._inner = [var for stmt in walk(tuple(inside)) for var in defined(stmt)]

    def named(self, node: Expr, name: str) -> Var | None:
        """The variable for a node; None for what is no such quotient."""
        if not is_quotient(node) or uses(node, self._inner) or next(loads(node), None) is not None:
            return None
        known = next((bind.var for bind in self.binds if same(bind.value, node)), None)
        if known is None:
            known = tirx.Var(name, dtype_of(node))
            self.binds.append(Bind(known, node))
        return known
