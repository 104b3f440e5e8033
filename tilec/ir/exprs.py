"""The parts of TVM expressions, node kind by node kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad

from tilec.ir.text import CALLED, dtype_of, is_float

if TYPE_CHECKING:
    from tvm.ir import Expr

__all__ = ["COMPARE", "PAIRS", "dtype_of", "int_value", "is_float", "operands", "scalar_dtype", "walk"]

COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)

#: Classes with operands ``a`` and ``b``.
PAIRS = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, *CALLED),
    *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift),
    *(tirx.And, tirx.Or, *COMPARE),
)

_FIELDS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(PAIRS, ("a", "b")),
    tirx.Not: ("a",),
    tirx.BitwiseNot: ("a",),
    tirx.Cast: ("value",),
    tirx.Select: ("condition", "true_value", "false_value"),
    tirx.Let: ("value", "body"),
    tirx.Ramp: ("base", "stride", "lanes"),
    tirx.Broadcast: ("value", "lanes"),
}


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    names = _FIELDS.get(type(expr))
    if names is not None:
        return tuple(getattr(expr, name) for name in names)
    if isinstance(expr, TensorLoad):
        return tuple(expr.indices)
    if isinstance(expr, Call):
        return tuple(expr.args)
    if isinstance(expr, tirx.Shuffle):
        return (*expr.vectors, *expr.indices)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, parents first."""
    yield expr
    for part in operands(expr):
        yield from walk(part)


def int_value(expr: Expr | int) -> int | None:
    """The value of an integer literal, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def scalar_dtype(expr: Expr) -> str:
    """The dtype of one lane."""
    return str(expr.ty.dtype.with_lanes(1)) if expr.ty.dtype.lanes != 1 else dtype_of(expr)
