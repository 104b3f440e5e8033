"""Integer texts (Python syntax) to C expressions that notice overflow; the functions are in
runtime_c/src/arith.h."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tilec.errors import PackageError
from tilec.sizes import SizeError, parse_size

_CHECKED = {
    ast.Add: "int_add",
    ast.Sub: "int_sub",
    ast.Mult: "int_mul",
    ast.FloorDiv: "int_floordiv",
    ast.Mod: "int_floormod",
}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_CONNECTIVES = {ast.And: " && ", ast.Or: " || "}
_EXTREMA = {"min": "int_min", "max": "int_max"}
_INT64_MAX = 2**63 - 1


def to_c(text: str, names: Mapping[str, str]) -> str:
    """``text`` as a C expression of type int64_t. ``names`` maps each name to a C expression; a variable
    ``bool ok`` is in scope and turns false on overflow or division by zero. Raises PackageError for syntax
    outside + - * // %, comparisons, and/or/not, min, max, select, and for unknown names."""
    return Converter(text, names).convert(parse(text))


def parse(text: str) -> ast.expr:
    """The syntax tree of an integer text; PackageError if it is no size."""
    try:
        return parse_size(text)
    except SizeError as error:
        raise _unsupported(text, str(error)) from error


def _unsupported(text: str, why: str) -> PackageError:
    return PackageError(
        f"the size {text!r} cannot be computed at run time",
        why=why,
        remedy="use + - * // %, comparisons, min, max and select over dims and scalar parameters",
    )


class Converter:
    """Walks one tree that `parse` gave and writes C; keeps the text for messages. Another language overrides
    what differs."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text = text
        self.names = names

    def convert(self, node: ast.expr) -> str:
        """The expression of ``node``; PackageError for an unknown name or a number of more than 64 bits."""
        return str(getattr(self, f"_{type(node).__name__.lower()}")(node))

    def _constant(self, node: ast.Constant) -> str:
        value = int(node.value)  # type: ignore[arg-type]
        if value > _INT64_MAX:
            raise _unsupported(self.text, f"{value} has more than 64 bits")
        return self._literal(value)

    def _name(self, node: ast.Name) -> str:
        if node.id not in self.names:
            known = ", ".join(self.names) or "none"
            raise PackageError(
                f"the size {self.text!r} uses the unknown name {node.id!r}", why=f"known: {known}"
            )
        return self.names[node.id]

    def _binop(self, node: ast.BinOp) -> str:
        return f"{_CHECKED[type(node.op)]}(&ok, {self.convert(node.left)}, {self.convert(node.right)})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return f"(!{self.convert(node.operand)})"
        return f"int_sub(&ok, 0, {self.convert(node.operand)})"

    def _compare(self, node: ast.Compare) -> str:
        operator = _COMPARISONS[type(node.ops[0])]
        return f"({self.convert(node.left)} {operator} {self.convert(node.comparators[0])})"

    def _boolop(self, node: ast.BoolOp) -> str:
        return f"({_CONNECTIVES[type(node.op)].join(self.convert(value) for value in node.values)})"

    def _call(self, node: ast.Call) -> str:
        function = node.func.id  # type: ignore[attr-defined]
        args = [self.convert(arg) for arg in node.args]
        return self._select(*args) if function == "select" else f"{_EXTREMA[function]}({args[0]}, {args[1]})"

    def _literal(self, value: int) -> str:
        return f"INT64_C({value})"

    def _select(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"
