"""Integer expressions over dims and scalar parameters as the texts that packages carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, Var

from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tvm.ir import Expr

_INFIX = {
    tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.Div: "//",
    tirx.FloorMod: "%", tirx.Mod: "%",
    tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!=",
}  # fmt: skip
_CALLED = {tirx.Min: "min", tirx.Max: "max"}


def int_text(expr: Expr | int, names: Mapping[Var, str]) -> str:
    """``expr`` in the syntax of `tilec.codegen.image`; ``names`` are those of dims and parameters.

    Truncating division is written as floor division: grids and sizes are not negative. UnsupportedError for
    what the syntax has no words for."""
    if isinstance(expr, int):
        return str(expr)
    kind = type(expr)
    if kind is tirx.IntImm:
        return str(int(expr.value))
    if kind is Var and expr in names:
        return names[expr]
    if kind is tirx.Cast:
        return int_text(expr.value, names)
    if kind in _CALLED:
        return f"{_CALLED[kind]}({int_text(expr.a, names)}, {int_text(expr.b, names)})"
    if kind in _INFIX:
        return f"{_operand(expr.a, names)} {_INFIX[kind]} {_operand(expr.b, names)}"
    choice = _choice(expr)
    if choice is None:
        raise UnsupportedError(
            "a grid or a workspace size uses an expression that is no plain integer arithmetic",
            why=str(expr),
            remedy="use + - * // %, comparisons, min, max and if_then_else over dims and integer arguments",
        )
    return f"select({', '.join(int_text(part, names) for part in choice)})"


def _choice(expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, Call) and getattr(expr.op, "name", "").endswith("if_then_else"):
        return tuple(expr.args)
    return None


def _operand(expr: Expr, names: Mapping[Var, str]) -> str:
    text = int_text(expr, names)
    return f"({text})" if type(expr) in _INFIX else text
