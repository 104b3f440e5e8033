"""Integer expressions over dims and scalar parameters as the texts that packages carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.errors import UnsupportedError
from tilec.ir.exprs import choice_of
from tilec.sizes import Apply, Literal, Name, Node, text_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_OPERATIONS = {
    tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.Div: "//",
    tirx.FloorMod: "%", tirx.Mod: "%",
    tirx.Min: "min", tirx.Max: "max",
    tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!=",
}  # fmt: skip


def int_text(expr: Expr | int, names: Mapping[Var, str]) -> str:
    """``expr`` as a size of `tilec.sizes`; ``names`` are those of dims and parameters.

    Truncating division is written as floor division: grids and sizes are not negative. UnsupportedError for
    what the syntax has no words for."""
    return text_of(_size(expr, names))


def _size(expr: Expr | int, names: Mapping[Var, str]) -> Node:
    if isinstance(expr, int):
        return Literal(expr)
    kind = type(expr)
    if kind is tirx.IntImm:
        return Literal(int(expr.value))
    if kind is Var and expr in names:
        return Name(names[expr])
    if kind is tirx.Cast:
        return _size(expr.value, names)
    if kind in _OPERATIONS:
        return Apply(_OPERATIONS[kind], (_size(expr.a, names), _size(expr.b, names)))
    choice = choice_of(expr)
    if choice is None:
        raise UnsupportedError(
            "a grid or a workspace size uses an expression that is no plain integer arithmetic",
            why=str(expr),
            remedy="use + - * // %, comparisons, min, max and if_then_else over dims and integer arguments",
        )
    return Apply("select", tuple(_size(part, names) for part in choice))
