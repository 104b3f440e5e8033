"""Walking and rewriting TVM expressions, node kind by node kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Classes with operands ``a`` and ``b``.
BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max,
    tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift,
)  # fmt: skip
COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
LOGIC = (tirx.And, tirx.Or)

_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((*BINARY, *COMPARE, *LOGIC), ("a", "b")),
    tirx.Not: ("a",),
    tirx.BitwiseNot: ("a",),
    tirx.Cast: ("value",),
    tirx.Select: ("condition", "true_value", "false_value"),
    tirx.Let: ("value", "body"),
    tirx.Ramp: ("base", "stride", "lanes"),
    tirx.Broadcast: ("value", "lanes"),
}


def dtype_of(expr: Expr) -> str:
    """The dtype of an expression as a string, lanes included."""
    return str(expr.ty.dtype)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    kind = type(expr)
    names = _FIELDS.get(kind)
    if names is not None:
        return tuple(getattr(expr, name) for name in names)
    if kind is TensorLoad:
        return tuple(expr.indices)
    if kind is Call:
        return tuple(expr.args)
    return (*expr.vectors, *expr.indices) if kind is tirx.Shuffle else ()


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


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, parents first."""
    yield expr
    for part in operands(expr):
        yield from walk(part)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    if not values:
        return expr
    return transform(expr, lambda node: values.get(node) if isinstance(node, Var) else None)


def loads(expr: Expr) -> Iterator[TensorLoad]:
    """Every element read in ``expr``, those inside indices too."""
    return (node for node in walk(expr) if isinstance(node, TensorLoad))


def uses(expr: Expr, variables: object) -> bool:
    """Whether ``expr`` mentions one of ``variables`` (a container of Var)."""
    return any(isinstance(node, Var) and node in variables for node in walk(expr))  # type: ignore[operator]


def same(a: Expr, b: Expr) -> bool:
    """Structural equality over identical variables."""
    return a.same_as(b) or bool(tvm_ffi.structural_equal(a, b))


def same_all(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Structural equality of two index tuples."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction."""
    if isinstance(cond, tirx.And):
        return (*conjuncts(cond.a), *conjuncts(cond.b))
    return (cond,)


def all_of(conds: list[Expr]) -> Expr:
    """The conjunction of one or more conditions."""
    result = conds[0]
    for cond in conds[1:]:
        result = tirx.And(result, cond)
    return result


def int_value(expr: Expr | int) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None
