"""Looking at TVM expressions, node kind by node kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    """The dtype of an expression as TVM names it, lanes included."""
    return str(expr.ty.dtype)


def scalar_dtype(expr: Expr) -> str:
    """The dtype of one lane."""
    return str(expr.ty.dtype.with_lanes(1)) if expr.ty.dtype.lanes != 1 else dtype_of(expr)


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


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, parents first."""
    yield expr
    for part in operands(expr):
        yield from walk(part)


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
