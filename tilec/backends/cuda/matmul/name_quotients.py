"""Quotients of a ring's trips have names: what is known in front of a wait holds up no load behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, loads, same, transform, uses
from tilec.ir.nodes import Bind, walk
from tilec.ir.traits import Rewriter, defined
from tilec.lowering.analysis.facts import is_quotient

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.nodes import RingFill


def with_named_quotients(fill: RingFill) -> RingFill:
    """A fill whose trip, or a multiple of it, is divided once by each number that is known at run time alone
    (the steps along the channels of a tap, or the channels), by names in front of all else."""
    named = _Named(fill)
    body = named.block(fill.body)
    return replace(fill, body=(*(Bind(var, value) for var, value in named.names), *body))


class _Named(Rewriter):
    """The statements of a fill over names of quotients and remainders of its trip."""

    def __init__(self, fill: RingFill) -> None:
        super().__init__()
        self._trip = fill.var
        self._inner = [var for stmt in walk(fill.body) for var in defined(stmt)]
        self.names: list[tuple[Var, Expr]] = []

    def expr(self, expr: Expr) -> Expr:
        """With names."""
        return transform(expr, self._visit)

    def _visit(self, node: Expr) -> Expr | None:
        if not is_quotient(node) or not uses(node, (self._trip,)) or uses(node, self._inner):
            return None
        if next(loads(node), None) is not None:
            return None
        known = next((var for var, value in self.names if same(value, node)), None)
        if known is None:
            known = tirx.Var("part_of_trip", dtype_of(node))
            self.names.append((known, node))
        return known
