"""Looking at TVM expressions, node kind by node kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Classes with operands ``a`` and ``b``.
BINARY = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max,
    tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift,
)  # fmt: skip
COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
LOGIC = (tirx.And, tirx.Or)

_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((*BINARY, *COMPARE, *LOGIC), attrgetter("a", "b")),
    tirx.Not: lambda expr: (expr.a,),
    tirx.BitwiseNot: lambda expr: (expr.a,),
    tirx.Cast: lambda expr: (expr.value,),
    tirx.Select: attrgetter("condition", "true_value", "false_value"),
    tirx.Let: attrgetter("value", "body"),
    tirx.Ramp: attrgetter("base", "stride", "lanes"),
    tirx.Broadcast: attrgetter("value", "lanes"),
    tirx.Shuffle: lambda expr: (*expr.vectors, *expr.indices),
    TensorLoad: lambda expr: tuple(expr.indices),
    Call: lambda expr: tuple(expr.args),
}


def dtype_of(expr: Expr) -> str:
    """The dtype of an expression as TVM names it, lanes included."""
    return str(expr.ty.dtype)


def scalar_dtype(expr: Expr) -> str:
    """The dtype of one lane."""
    return str(expr.ty.dtype.with_lanes(1)) if expr.ty.dtype.lanes != 1 else dtype_of(expr)


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    parts = _OPERANDS.get(type(expr))
    return () if parts is None else parts(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, parents first."""
    left = [expr]
    while left:
        node = left.pop()
        yield node
        left.extend(reversed(operands(node)))


def loads(expr: Expr) -> Iterator[TensorLoad]:
    """Every element read in ``expr``, those inside indices too."""
    return (node for node in walk(expr) if isinstance(node, TensorLoad))


def same(a: Expr, b: Expr) -> bool:
    """Structural equality over identical variables."""
    return a.same_as(b) or bool(tvm_ffi.structural_equal(a, b))


def same_all(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Structural equality of two index tuples."""
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def int_value(expr: Expr | int) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None
