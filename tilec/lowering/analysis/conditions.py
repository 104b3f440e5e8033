"""Conditions as they are written: their opposites, how far a comparison holds, and what no proof takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.numbers.long_names import is_long
from tilec.ir.exprs import DIVISIONS, choice_of, dtype_of, int_value, walk

if TYPE_CHECKING:
    from tvm.ir import Expr


def negate(cond: Expr) -> Expr | None:
    """The opposite of a comparison, None for other conditions."""
    opposite = {tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.GT: tirx.LE, tirx.LE: tirx.GT,
                tirx.EQ: tirx.NE, tirx.NE: tirx.EQ}.get(type(cond))  # fmt: skip
    return None if opposite is None else opposite(cond.a, cond.b)


def opposite(cond: Expr) -> Expr:
    """Where a condition fails: by comparisons of integers where it has some, joined as they are joined."""
    if isinstance(cond, tirx.Not):
        return cond.a
    if isinstance(cond, (tirx.Or, tirx.BitwiseOr)) and dtype_of(cond) == "bool":
        return tirx.And(opposite(cond.a), opposite(cond.b))
    made = negate(cond) if gap(cond) is not None else None
    return tirx.Not(cond) if made is None else made


def gap(cond: Expr) -> Expr | None:
    """An expression that is positive exactly where an integer comparison holds."""
    if not isinstance(cond, (tirx.LT, tirx.LE, tirx.GT, tirx.GE)):
        return None
    if not dtype_of(cond.a).startswith("int"):
        return None
    gaps = {tirx.LT: (cond.b, cond.a, 0), tirx.LE: (cond.b, cond.a, 1),
            tirx.GT: (cond.a, cond.b, 0), tirx.GE: (cond.a, cond.b, 1)}  # fmt: skip
    large, small, offset = gaps[type(cond)]
    return large - small + offset


def is_quotient(value: Expr) -> bool:
    """Whether a value is a quotient or a remainder by what is known at run time alone."""
    return type(value) in DIVISIONS and int_value(value.b) is None


def has_quotient(value: Expr) -> bool:
    """Whether a value is computed from such."""
    return any(map(is_quotient, walk(value)))


def is_opaque(cond: Expr) -> bool:
    """Whether the analyzer has nothing to say of a condition: its algebra is wrong of floats (x != x may
    hold), fails on unsigned differences (of a choice of 0 it takes 0 - 8), and it looks at the condition of a
    choice several times, so that of choices by choices it takes twice as long with each."""
    if any("float" in dtype_of(node) or _is_unsigned_difference(node) for node in walk(cond)):
        return True
    if not is_long(cond):
        return False
    tests = (choice[0] for choice in map(choice_of, walk(cond)) if choice is not None)
    return any(choice_of(node) is not None for test in tests for node in walk(test))


def _is_unsigned_difference(node: Expr) -> bool:
    return isinstance(node, tirx.Sub) and dtype_of(node).startswith("uint")


def is_below_zero(cond: Expr | None) -> bool:
    """Whether a condition says that an unsigned number is less than 0, which the analyzer cannot assume."""
    least = cond.b if isinstance(cond, tirx.LT) else cond.a if isinstance(cond, tirx.GT) else None
    return least is not None and dtype_of(least).startswith("uint") and int_value(least) == 0
