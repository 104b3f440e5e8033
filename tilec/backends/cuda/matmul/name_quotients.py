"""Quotients of a ring's trips have names: what is known in front of a wait holds up no load behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value, same, transform
from tilec.ir.nodes import Bind
from tilec.ir.traits import Rewriter

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.nodes import RingFill


def with_named_quotients(fill: RingFill) -> RingFill:
    """A fill whose trip is divided once by each number that is known at run time alone (the steps along the
    channels of a tap), by names in front of all else."""
    named = _Named(fill.var)
    body = named.block(fill.body)
    return replace(fill, body=(*(Bind(var, value) for var, value in named.names), *body))


class _Named(Rewriter):
    """Statements over names of quotients and remainders of ``trip``."""

    def __init__(self, trip: Var) -> None:
        super().__init__()
        self._trip = trip
        self.names: list[tuple[Var, Expr]] = []

    def expr(self, expr: Expr) -> Expr:
        """With names."""
        return transform(expr, self._visit)

    def _visit(self, node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or int_value(node.b) is not None:
            return None
        if not node.a.same_as(self._trip):
            return None
        known = next((var for var, value in self.names if same(value, node)), None)
        if known is None:
            known = tirx.Var("part_of_trip", dtype_of(node))
            self.names.append((known, node))
        return known
