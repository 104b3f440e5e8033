"""TVM expressions as Python-like text that parses back to the same nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import tvm
from tvm import tirx
from tvm.ir import Call, Op, StringImm, Var

from tilec.errors import IRError
from tilec.ir.exprs import dtype_of
from tilec.ir.text.words import (
    ATOM,
    BINARY,
    CALLED,
    COMPARISON,
    EXPR_WORDS,
    NOT,
    UNARY,
    Names,
    find_op,
    is_float,
    result_dtype,
)

if TYPE_CHECKING:
    from tvm.ir import Expr


def format_expr(expr: Expr | int) -> str:
    """The text of one expression. Every variable keeps its own name, numbered where two share one."""
    return ExprPrinter(Names()).text(expr)


class ExprPrinter:
    """Writes expressions with the brackets that Python's precedence asks for and no more."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def text(self, expr: Expr | int, level: int = 0) -> str:
        """``expr`` in a place where an operator of precedence ``level`` or above needs no brackets."""
        if isinstance(expr, int):
            return str(expr)
        written, own = self._written(expr)
        return f"({written})" if own < level else written

    def list(self, exprs: object) -> str:
        """Several expressions, separated by commas."""
        return ", ".join(self.text(expr) for expr in exprs)  # type: ignore[attr-defined]

    def _written(self, expr: Expr) -> tuple[str, int]:
        kind = type(expr)
        if kind is tirx.Div and not is_float(dtype_of(expr)):
            return self._pair(expr), ATOM
        if kind in BINARY:
            return self._binary(expr)
        if kind in CALLED:
            return self._pair(expr), ATOM
        writer = _WRITERS.get(kind)
        if writer is None:
            raise IRError(f"no text for expressions of {kind.__name__}", why=str(expr))
        return writer(self, expr)

    def _binary(self, expr: Expr) -> tuple[str, int]:
        word, level = BINARY[type(expr)]
        left = self.text(expr.a, level + 1 if level == COMPARISON else level)
        return f"{left} {word} {self.text(expr.b, level + 1)}", level

    def _pair(self, expr: Expr) -> str:
        return f"{CALLED[type(expr)]}({self.text(expr.a)}, {self.text(expr.b)})"

    def _var(self, expr: Expr) -> tuple[str, int]:
        return self.names.of(expr), ATOM

    def _int(self, expr: Expr) -> tuple[str, int]:
        dtype, value = dtype_of(expr), int(expr.value)
        if dtype == "bool":
            return str(bool(value)), ATOM
        if dtype != "int32":
            return f"{dtype}({value})", ATOM
        return str(value), UNARY if value < 0 else ATOM

    def _float(self, expr: Expr) -> tuple[str, int]:
        dtype, value = dtype_of(expr), float(expr.value)
        digits = repr(value) if math.isfinite(value) else f'"{value}"'
        if dtype != "float32" or not math.isfinite(value):
            return f"{dtype}({digits})", ATOM
        return digits, UNARY if digits.startswith("-") else ATOM

    def _cast(self, expr: Expr) -> tuple[str, int]:
        return f"cast({dtype_of(expr)}, {self.text(expr.value)})", ATOM

    def _load(self, expr: Expr) -> tuple[str, int]:
        return f"{self.names.of(expr.source)}[{self.list(expr.indices) or '()'}]", ATOM

    def _not(self, expr: Expr) -> tuple[str, int]:
        return f"not {self.text(expr.a, NOT)}", NOT

    def _invert(self, expr: Expr) -> tuple[str, int]:
        return f"~{self.text(expr.a, UNARY)}", UNARY

    def _select(self, expr: Expr) -> tuple[str, int]:
        return f"select({self.list((expr.condition, expr.true_value, expr.false_value))})", ATOM

    def _let(self, expr: Expr) -> tuple[str, int]:
        value = self.text(expr.value)
        return f"let({self.names.of(expr.var)}, {value}, {self.text(expr.body)})", ATOM

    def _ramp(self, expr: Expr) -> tuple[str, int]:
        return f"ramp({self.list((expr.base, expr.stride, expr.lanes))})", ATOM

    def _broadcast(self, expr: Expr) -> tuple[str, int]:
        return f"broadcast({self.list((expr.value, expr.lanes))})", ATOM

    def _shuffle(self, expr: Expr) -> tuple[str, int]:
        return f"shuffle([{self.list(expr.vectors)}], [{self.list(expr.indices)}])", ATOM

    def _string(self, expr: Expr) -> tuple[str, int]:
        return json.dumps(str(expr.value), ensure_ascii=False), ATOM

    def _call(self, expr: Expr) -> tuple[str, int]:
        if not isinstance(expr.op, Op):
            raise IRError("no text for calls of anything but intrinsics", why=str(expr))
        name, dtype, args = expr.op.name, dtype_of(expr), self.list(expr.args)
        word = name.split(".", 1)[-1]
        if name == "tirx.reinterpret":
            return f"reinterpret({dtype}, {args})", ATOM
        short = "." not in word and word not in EXPR_WORDS and result_dtype(word, list(expr.args)) == dtype
        found = find_op(word) if short else None
        if found is not None and found.name == name:
            return f"{word}({args})", ATOM
        return f"call({', '.join(filter(None, (dtype, json.dumps(name), args)))})", ATOM


_WRITERS: dict[type, Callable[[ExprPrinter, Expr], tuple[str, int]]] = {
    Var: ExprPrinter._var,
    tirx.IntImm: ExprPrinter._int,
    tirx.FloatImm: ExprPrinter._float,
    StringImm: ExprPrinter._string,
    tirx.Cast: ExprPrinter._cast,
    tvm.ir.TensorLoad: ExprPrinter._load,
    tirx.Not: ExprPrinter._not,
    tirx.BitwiseNot: ExprPrinter._invert,
    tirx.Select: ExprPrinter._select,
    tirx.Let: ExprPrinter._let,
    tirx.Ramp: ExprPrinter._ramp,
    tirx.Broadcast: ExprPrinter._broadcast,
    tirx.Shuffle: ExprPrinter._shuffle,
    Call: ExprPrinter._call,
}
