"""Quotients by run-time values: how large they get, and how they are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value, transform

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.analysis.facts import Facts

#: Quotients of no more than so many values are told apart from unbounded ones.
_MOST = 1 << 10


def count_of(quotient: Expr, facts: Facts) -> int | None:
    """How many values from 0 on ``a // b`` takes at most, as a power of two; None where that is not known."""
    a, b = quotient.a, quotient.b
    if facts.prove(a >= tirx.const(0, dtype_of(a))) is not True:
        return None
    counts = (1 << step for step in range(_MOST.bit_length()))
    return next((count for count in counts if facts.prove(a < b * tirx.const(count, dtype_of(b)))), None)


def bounds_of(expr: Expr, facts: Facts) -> tuple[int, int]:
    """The range of ``expr``; quotients by run-time values count with theirs."""

    def visit(node: Expr) -> Expr | None:
        count = count_of(node, facts) if is_quotient(node) else None
        if count is None:
            return None
        var = tirx.Var("quotient", dtype_of(node))
        facts.bind_range(var, 0, count)
        return var

    bound = facts.analyzer.const_int_bound(facts.simplify(transform(facts.inline(expr), visit)))
    return int(bound.min_value), int(bound.max_value)


def natural(expr: Expr, facts: Facts) -> Expr:
    """``expr`` with quotients and remainders of what is never negative as the machine has them, without fixes
    for signs."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)):
            return None
        zero = tirx.const(0, dtype_of(node))
        if facts.prove(node.a >= zero) is not True or facts.prove(node.b > zero) is not True:
            return None
        divide = tirx.truncdiv if isinstance(node, tirx.FloorDiv) else tirx.truncmod
        return divide(natural(node.a, facts), natural(node.b, facts))

    return transform(expr, visit)


def is_quotient(node: Expr) -> bool:
    """Whether a node divides by a run-time value."""
    return isinstance(node, tirx.FloorDiv) and int_value(node.b) is None
