"""Columns of an accumulator in pairs: a lane holds both of a pair, so that an element may be made of either.

A pair is columns 2 p and 2 p + 1; ``side`` is 0 or 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import choice_of, dtype_of, int_value, loads, substitute, transform, uses
from tilec.ir.traits import expressions, loads_of
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Stmt

#: More pairs than a tile has.
_PAIRS = 1 << 16


class Column:
    """The column of an element: one side of a pair."""

    def __init__(self, var: Var, side: int) -> None:
        self.var, self.side = var, side
        dtype = dtype_of(var)
        pair = tirx.Var("pair", dtype)
        self._analyzer = counted((pair,), (_PAIRS,))
        self._first = pair * tirx.const(2, dtype)
        self._values = {var: self._first + tirx.const(side, dtype)}

    def chosen(self, expr: Expr) -> Expr | None:
        """The value of a choice that the side decides; None for other expressions."""
        choice = choice_of(expr)
        if choice is None or not uses(choice[0], (self.var,)) or any(True for _ in loads(choice[0])):
            return None
        holds = int_value(self._analyzer.simplify(substitute(choice[0], self._values)))
        return None if holds is None else choice[1] if holds else choice[2]

    def made(self, expr: Expr) -> Expr:
        """An expression with the choices made that the side decides."""

        def visit(node: Expr) -> Expr | None:
            chosen = self.chosen(node)
            return None if chosen is None else self.made(chosen)

        return transform(expr, visit)

    def side_of(self, index: Expr) -> int | None:
        """The side of the same pair that an index is; None for other columns."""
        if index.same_as(self.var):
            return self.side
        found = int_value(self._analyzer.simplify(substitute(index, self._values) - self._first))
        return found if found in (0, 1) else None


def reads_pairs(body: Block, column: Var, fragments: Set[Var]) -> bool:
    """Whether statements read another column of fragments than their own."""
    return any(not load.indices[-1].same_as(column) for load in _held(body, fragments))


def stays_in_pairs(stmt: Stmt, loop_vars: tuple[Var, ...], fragments: Set[Var]) -> bool:
    """Whether all that a statement reads of fragments for an element is in its row and of its pair."""
    row, column = loop_vars
    for at in (Column(column, 0), Column(column, 1)):
        for load in (each for expr in expressions(stmt) for each in loads(at.made(expr))):
            if load.source not in fragments:
                continue
            if not load.indices[0].same_as(row) or at.side_of(load.indices[1]) is None:
                return False
    return True


def _held(body: Block, fragments: Set[Var]) -> list[TensorLoad]:
    found = loads_of(*body)
    return [load for load in found if load.source in fragments]
