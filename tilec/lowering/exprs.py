"""Rewriting TVM expressions; looking at them is `tilec.ir.exprs`, repeated here for the passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.tirx.analysis import undefined_vars

from tilec.ir.exprs import (
    BINARY,
    COMPARE,
    LOGIC,
    dtype_of,
    int_value,
    loads,
    operands,
    same,
    same_all,
    walk,
)

if TYPE_CHECKING:
    from tvm.ir import Expr

__all__ = [
    "BINARY",
    "COMPARE",
    "LOGIC",
    "all_of",
    "conjuncts",
    "dtype_of",
    "inlined",
    "int_value",
    "loads",
    "operands",
    "rebuild",
    "same",
    "same_all",
    "substitute",
    "transform",
    "uses",
    "walk",
]


def rebuild(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """``expr`` over other subexpressions (in the order of `operands`)."""
    kind = type(expr)
    if isinstance(expr, TensorLoad):
        return tirx.BufferLoad(expr.source, list(new))
    if isinstance(expr, Call):
        return Call(expr.op, list(new), ret_ty=expr.ty)
    if isinstance(expr, tirx.Shuffle):
        count = len(expr.vectors)
        return tirx.Shuffle(list(new[:count]), list(new[count:]))
    if kind is tirx.Cast:
        return tirx.Cast(expr.ty, new[0])
    if kind is tirx.Let:
        return tirx.Let(expr.var, *new)
    return kind(*new)


def transform(expr: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """``expr`` with every subexpression for which ``visit`` gives one replaced, outermost first."""
    replacement = visit(expr)
    if replacement is not None:
        return replacement
    old = operands(expr)
    new = tuple(transform(part, visit) for part in old)
    if all(a.same_as(b) for a, b in zip(old, new, strict=True)):
        return expr
    return rebuild(expr, new)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    if not values or not any(var in values for var in undefined_vars(expr)):
        return expr
    return transform(expr, lambda node: values.get(node) if isinstance(node, Var) else None)


def inlined(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced, those that the replacements mention too."""
    for _ in values:
        expr = substitute(expr, values)
    return expr


def uses(expr: Expr, variables: object) -> bool:
    """Whether ``expr`` mentions one of ``variables`` (a container of Var)."""
    return any(isinstance(node, Var) and node in variables for node in walk(expr))  # type: ignore[operator]


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction, written with ``and`` or with ``&``."""
    if isinstance(cond, tirx.And) or (isinstance(cond, tirx.BitwiseAnd) and dtype_of(cond) == "bool"):
        return (*conjuncts(cond.a), *conjuncts(cond.b))
    return (cond,)


def all_of(conds: list[Expr]) -> Expr:
    """The conjunction of one or more conditions."""
    result = conds[0]
    for cond in conds[1:]:
        result = tirx.And(result, cond)
    return result
