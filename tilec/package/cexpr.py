"""Integer texts (Python syntax) to C expressions that notice overflow; the functions are in
runtime_c/src/arith.h."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tilec.errors import PackageError

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
    """The syntax tree of an integer text; PackageError if it is no expression."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise PackageError(f"the size {text!r} is no expression", why=str(error)) from error


def names_in(text: str) -> tuple[str, ...]:
    """The names that ``text`` reads, in order of appearance, functions left out."""
    calls = {node.func for node in ast.walk(parse(text)) if isinstance(node, ast.Call)}
    names = (node for node in ast.walk(parse(text)) if isinstance(node, ast.Name))
    functions = {node.id for node in calls if isinstance(node, ast.Name)}
    return tuple(dict.fromkeys(node.id for node in names if node.id not in functions))


class Converter:
    """Walks one tree and writes C; keeps the text for messages. Another language overrides what differs."""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text = text
        self.names = names

    def convert(self, node: ast.expr) -> str:
        """The expression of ``node``; PackageError for what sizes do not offer."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self._unsupported(type(node).__name__)
        return str(method(node))

    def _constant(self, node: ast.Constant) -> str:
        if not isinstance(node.value, int) or abs(node.value) > _INT64_MAX:
            raise self._unsupported(repr(node.value))
        return self._literal(int(node.value))

    def _name(self, node: ast.Name) -> str:
        if node.id not in self.names:
            known = ", ".join(self.names) or "none"
            raise PackageError(
                f"the size {self.text!r} uses the unknown name {node.id!r}", why=f"known: {known}"
            )
        return self.names[node.id]

    def _binop(self, node: ast.BinOp) -> str:
        function = _CHECKED.get(type(node.op))
        if function is None:
            raise self._unsupported(type(node.op).__name__)
        return f"{function}(&ok, {self.convert(node.left)}, {self.convert(node.right)})"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.USub):
            return f"int_sub(&ok, 0, {self.convert(node.operand)})"
        if isinstance(node.op, ast.Not):
            return f"(!{self.convert(node.operand)})"
        raise self._unsupported(type(node.op).__name__)

    def _compare(self, node: ast.Compare) -> str:
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARISONS:
            raise self._unsupported("this comparison")
        operator = _COMPARISONS[type(node.ops[0])]
        return f"({self.convert(node.left)} {operator} {self.convert(node.comparators[0])})"

    def _boolop(self, node: ast.BoolOp) -> str:
        return f"({_CONNECTIVES[type(node.op)].join(self.convert(value) for value in node.values)})"

    def _call(self, node: ast.Call) -> str:
        function = node.func.id if isinstance(node.func, ast.Name) else "a method"
        args = [self.convert(arg) for arg in node.args]
        if function == "select" and len(args) == 3:
            return self._select(*args)
        if function in _EXTREMA and len(args) == 2:
            return f"{_EXTREMA[function]}({args[0]}, {args[1]})"
        raise self._unsupported(f"{function} with {len(args)} arguments")

    def _literal(self, value: int) -> str:
        return f"INT64_C({value})"

    def _select(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"

    def _unsupported(self, what: str) -> PackageError:
        return PackageError(
            f"the size {self.text!r} cannot be computed at run time",
            why=f"{what} is not offered in sizes",
            remedy="use + - * // %, comparisons, min, max and select over dims and scalar parameters",
        )
