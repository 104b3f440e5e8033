"""Expressions of tile IR text, from Python's syntax tree back to TVM nodes (nothing is folded)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op, PrimType, StringImm, Var

from tilec.errors import IRError, Place
from tilec.ir.exprs import dtype_of
from tilec.ir.text.words import BINARY, CALLED, DTYPE, find_op, result_dtype

_AST_OPERATORS: dict[str, type[ast.AST]] = {
    "or": ast.Or,
    "and": ast.And,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "==": ast.Eq,
    "!=": ast.NotEq,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "&": ast.BitAnd,
    "<<": ast.LShift,
    ">>": ast.RShift,
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "//": ast.FloorDiv,
    "%": ast.Mod,
}
_NODES = {_AST_OPERATORS[word]: node for node, (word, _) in BINARY.items()}
_PAIRS = {word: node for node, word in CALLED.items()}


def fail(node: ast.AST, what: str) -> IRError:
    """The error for a place in the text."""
    return IRError(what, place=Place("tile IR", getattr(node, "lineno", None)))


def dtype_name(node: ast.AST) -> str:
    """A dtype written as a bare name."""
    if not isinstance(node, ast.Name) or DTYPE.fullmatch(node.id) is None:
        raise fail(node, f"expected a dtype, found {ast.unparse(node)}")
    return node.id


class ExprParser:
    """Reads expressions over the variables of ``scope`` (identifier -> variable or buffer)."""

    def __init__(self) -> None:
        self.scope: dict[str, Var] = {}

    def expr(self, node: ast.AST) -> Any:
        """The TVM expression that ``node`` spells.

        Raises:
            IRError: with the line, for unknown names and words and for operands that do not go together.
        """
        reader = _READERS.get(type(node))
        if reader is None:
            raise fail(node, f"no expression: {ast.unparse(node)}")
        try:
            return reader(self, node)
        except IRError:
            raise
        except Exception as error:  # TVM raises several kinds for operands that do not go together
            raise fail(node, f"cannot build {ast.unparse(node)}: {error}") from error

    def variable(self, node: ast.AST) -> Var:
        """The variable or buffer that a name stands for."""
        if not isinstance(node, ast.Name):
            raise fail(node, f"expected a name, found {ast.unparse(node)}")
        if node.id not in self.scope:
            raise fail(node, f"{node.id} is not defined")
        return self.scope[node.id]

    def indices(self, node: ast.AST) -> list[ast.expr]:
        """The index nodes of a subscript's slice."""
        return list(node.elts) if isinstance(node, ast.Tuple) else [node]  # type: ignore[list-item]

    def _constant(self, node: ast.Constant) -> Any:
        kinds = {bool: "bool", int: "int32", float: "float32"}
        if isinstance(node.value, str):
            return StringImm(node.value)
        if type(node.value) not in kinds:
            raise fail(node, f"no constant of the IR: {ast.unparse(node)}")
        return tirx.const(node.value, kinds[type(node.value)])

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return tirx.Not(self.expr(node.operand))
        if isinstance(node.op, ast.Invert):
            return tirx.BitwiseNot(self.expr(node.operand))
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._constant(ast.copy_location(ast.Constant(-node.operand.value), node))  # type: ignore[operator]
        raise fail(node, f"no expression: {ast.unparse(node)}")

    def _binary(self, node: ast.BinOp) -> Any:
        kind = _NODES.get(type(node.op))
        if kind is None:
            raise fail(node, f"no operator of the IR: {ast.unparse(node)}")
        return kind(self.expr(node.left), self.expr(node.right))

    def _logical(self, node: ast.BoolOp) -> Any:
        kind = _NODES[type(node.op)]
        result = self.expr(node.values[0])
        for value in node.values[1:]:
            result = kind(result, self.expr(value))
        return result

    def _compare(self, node: ast.Compare) -> Any:
        kind = _NODES.get(type(node.ops[0]))
        if len(node.ops) != 1 or kind is None:
            raise fail(node, f"not one comparison: {ast.unparse(node)}")
        return kind(self.expr(node.left), self.expr(node.comparators[0]))

    def _load(self, node: ast.Subscript) -> Any:
        indices = [self.expr(item) for item in self.indices(node.slice)]
        return tirx.BufferLoad(self.variable(node.value), indices)

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise fail(node, f"no expression: {ast.unparse(node)}")
        word, args = node.func.id, node.args
        if word in _SPECIAL:
            return _SPECIAL[word](self, node)
        if DTYPE.fullmatch(word):
            return self._typed(node, word)
        if word in _PAIRS:
            first, second = args
            return _PAIRS[word](self.expr(first), self.expr(second))
        return self._intrinsic(node, word)

    def _typed(self, node: ast.Call, dtype: str) -> Any:
        value = ast.literal_eval(node.args[0])
        if dtype.startswith(("int", "uint")):
            return tirx.IntImm(dtype, value)
        return tirx.FloatImm(dtype, float(value))

    def _intrinsic(self, node: ast.Call, word: str) -> Any:
        op = find_op(word)
        if op is None:
            raise fail(node, f"no function of the IR: {word}")
        args = [self.expr(arg) for arg in node.args]
        dtype = result_dtype(word, args)
        if dtype is None:
            raise fail(node, f"{word} needs its result type: call(dtype, ...)")
        return _make_call(dtype, op, args)

    def _explicit_call(self, node: ast.Call) -> Any:
        dtype, name, *args = node.args
        op = Op.get(ast.literal_eval(name))
        return _make_call(dtype_name(dtype), op, [self.expr(arg) for arg in args])

    def _cast(self, node: ast.Call) -> Any:
        dtype, value = node.args
        return tirx.Cast(dtype_name(dtype), self.expr(value))

    def _reinterpret(self, node: ast.Call) -> Any:
        dtype, value = node.args
        return _make_call(dtype_name(dtype), Op.get("tirx.reinterpret"), [self.expr(value)])

    def _select(self, node: ast.Call) -> Any:
        condition, true, false = node.args
        return tirx.Select(self.expr(condition), self.expr(true), self.expr(false))

    def _let(self, node: ast.Call) -> Any:
        name, value, body = node.args
        if not isinstance(name, ast.Name):
            raise fail(node, f"expected a name, found {ast.unparse(name)}")
        bound = self.expr(value)
        self.scope[name.id] = tirx.Var(name.id, dtype_of(bound))
        return tirx.Let(self.scope[name.id], bound, self.expr(body))

    def _ramp(self, node: ast.Call) -> Any:
        base, stride, lanes = node.args
        return tirx.Ramp(self.expr(base), self.expr(stride), self.expr(lanes))

    def _broadcast(self, node: ast.Call) -> Any:
        value, lanes = node.args
        return tirx.Broadcast(self.expr(value), self.expr(lanes))

    def _shuffle(self, node: ast.Call) -> Any:
        vectors, indices = ([self.expr(item) for item in part.elts] for part in node.args)  # type: ignore[attr-defined]
        return tirx.Shuffle(vectors, indices)


def _make_call(dtype: str, op: Op, args: list[Any]) -> Call:
    return Call(op, args, ret_ty=PrimType(dtype))


_READERS: dict[type, Callable[[ExprParser, Any], Any]] = {
    ast.Name: ExprParser.variable,
    ast.Constant: ExprParser._constant,
    ast.UnaryOp: ExprParser._unary,
    ast.BinOp: ExprParser._binary,
    ast.BoolOp: ExprParser._logical,
    ast.Compare: ExprParser._compare,
    ast.Subscript: ExprParser._load,
    ast.Call: ExprParser._call,
}
_SPECIAL: dict[str, Callable[[ExprParser, ast.Call], Any]] = {
    "call": ExprParser._explicit_call,
    "cast": ExprParser._cast,
    "reinterpret": ExprParser._reinterpret,
    "select": ExprParser._select,
    "let": ExprParser._let,
    "ramp": ExprParser._ramp,
    "broadcast": ExprParser._broadcast,
    "shuffle": ExprParser._shuffle,
}
