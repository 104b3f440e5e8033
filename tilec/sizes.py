"""Texts that compute: a part of Python's expressions, parsed and checked node by node into one small tree. No
text is ever run as Python.

A `Grammar` says which part. `SIZES` is that of extents, strides, grids and workspaces, which libraries carry
in their metadata and tile IR, so that anybody may have written them; manifests have grammars of their own.
Whoever makes something of a text is a `Visitor`: its value here, C and Rust in `tilec.package`. The loader, a
single file, walks over sizes by itself, to the same values.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar, Union

from tilec.errors import InputError

#: Deeper than people and the lowering write, and far from the depth of Python's own stack.
_DEEPEST = 100
_INT64 = 1 << 63


class SizeError(InputError, ValueError):
    """A text that is no size, or a size without a value."""


# ---- the tree ----


@dataclass(frozen=True)
class Literal:
    """A number, a truth or a string."""

    value: Any


@dataclass(frozen=True)
class Name:
    """A name."""

    name: str


@dataclass(frozen=True)
class Apply:
    """An operation on parts. ``op``: the operator as Python writes it, or the name of a function; `NEGATE`
    for the minus of one part, `LIST` for brackets around parts, "if" for ``yes if condition else no`` with
    the condition first."""

    op: str
    parts: tuple[Node, ...]


Node: TypeAlias = Union[Literal, Name, Apply]  # noqa: UP007 (evaluated on 3.10)
NEGATE, LIST = "-x", "[]"
_SYMBOLS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: NEGATE,
}  # fmt: skip
_INFIX = frozenset(_SYMBOLS.values()) - {"not", NEGATE}


def walk(node: Node) -> Iterator[Node]:
    """A tree, each node before its parts."""
    yield node
    if isinstance(node, Apply):
        for part in node.parts:
            yield from walk(part)


Result = TypeVar("Result")


class Visitor(Generic[Result]):
    """Makes something of a tree: of literals, of names, of operations on what their parts have become."""

    def visit(self, node: Node) -> Result:
        """What becomes of ``node``."""
        if isinstance(node, Literal):
            return self.literal(node.value)
        if isinstance(node, Name):
            return self.name(node.name)
        return self.apply(node.op, node.parts)

    def literal(self, value: Any) -> Result:
        """Of a literal."""
        raise NotImplementedError

    def name(self, name: str) -> Result:
        """Of a name."""
        raise NotImplementedError

    def apply(self, op: str, parts: Sequence[Node]) -> Result:
        """Of an operation, which visits its parts."""
        raise NotImplementedError


# ---- grammars ----


@dataclass(frozen=True)
class Operation:
    """What an operation computes, and of how many parts (``most`` None: any number). A ``lazy`` one gets
    functions of no arguments in place of values."""

    run: Callable[..., Any]
    fewest: int = 2
    most: int | None = 2
    lazy: bool = False


def _selected(condition: Callable[[], Any], yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    return yes() if condition() else no()


#: Arithmetic that every grammar offers.
ARITHMETIC: Mapping[str, Operation] = {
    "+": Operation(operator.add),
    "-": Operation(operator.sub),
    "*": Operation(operator.mul),
    "//": Operation(operator.floordiv),
    "%": Operation(operator.mod),
    NEGATE: Operation(operator.neg, 1, 1),
}
COMPARISONS: Mapping[str, Operation] = {
    "<": Operation(operator.lt),
    "<=": Operation(operator.le),
    ">": Operation(operator.gt),
    ">=": Operation(operator.ge),
    "==": Operation(operator.eq),
    "!=": Operation(operator.ne),
}
#: ``select(condition, yes, no)`` computes one of the two alone, as C does.
SELECT = Operation(_selected, 3, 3, lazy=True)
LOGIC: Mapping[str, Operation] = {
    "and": Operation(lambda *parts: all(part() for part in parts), 2, None, lazy=True),
    "or": Operation(lambda *parts: any(part() for part in parts), 2, None, lazy=True),
    "not": Operation(operator.not_, 1, 1),
    "select": SELECT,
}


@dataclass(frozen=True, eq=False)
class Grammar:
    """What is offered. In messages an expression is called ``what``, with its ``article``, and ``offered``
    says what it is made of; it has at most ``longest`` characters. ``constants`` are the types of literals.
    Comparisons may be chained where ``chains``. Names may be those of functions, which stand before brackets,
    but where these are ``apart``."""

    article: str
    what: str
    offered: str
    longest: int
    constants: tuple[type, ...]
    operations: Mapping[str, Operation]
    chains: bool = False
    apart: bool = False

    def __str__(self) -> str:
        return f"{self.article} {self.what}"


@lru_cache(maxsize=4096)
def parse(grammar: Grammar, text: str) -> Node:
    """The tree of ``text``. Raises SizeError where it is no such expression."""
    if len(text) > grammar.longest:
        raise SizeError(f"{grammar} has at most {grammar.longest} characters, this one {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
        raise SizeError(f'"{text}" is no {grammar.what}: {why}') from error
    return _Reader(grammar, text).read(tree, 0)


@dataclass(frozen=True)
class _Reader:
    """Checks that every node is of a kind that is offered."""

    grammar: Grammar
    text: str

    def read(self, node: ast.expr, depth: int) -> Node:
        """The tree of a node of Python's."""
        if depth > _DEEPEST:
            raise SizeError(
                f'"{self.text}" is no {self.grammar.what}: it is nested more than {_DEEPEST} deep'
            )
        if isinstance(node, ast.Constant) and type(node.value) in self.grammar.constants:
            return Literal(node.value)
        if isinstance(node, ast.Name) and not (self.grammar.apart and node.id in self.grammar.operations):
            return Name(node.id)
        if isinstance(node, ast.Compare) and (self.grammar.chains or len(node.ops) == 1):
            return self._compared(node, depth)
        op, parts = _operation(node)
        offered = self.grammar.operations.get(op)
        if offered is None or not offered.fewest <= len(parts) <= (offered.most or len(parts)):
            raise self._refusal(node)
        return Apply(op, tuple(self.read(part, depth + 1) for part in parts))

    def _compared(self, node: ast.Compare, depth: int) -> Node:
        """A chain holds when each link does."""
        parts = [self.read(part, depth + 1) for part in (node.left, *node.comparators)]
        symbols = [_SYMBOLS.get(type(op), "") for op in node.ops]
        if not set(symbols) <= set(self.grammar.operations):
            raise self._refusal(node)
        links = tuple(map(Apply, symbols, itertools.pairwise(parts)))
        return links[0] if len(links) == 1 else Apply("and", links)

    def _refusal(self, node: ast.expr) -> SizeError:
        grammar = self.grammar
        return SizeError(
            f'"{self.text}" has "{ast.unparse(node)}", and {grammar} is made of {grammar.offered}'
        )


def _operation(node: ast.expr) -> tuple[str, Sequence[ast.expr]]:
    """The operation that a node of Python's is, and its parts; "" for none."""
    if isinstance(node, ast.BinOp):
        return _SYMBOLS.get(type(node.op), ""), (node.left, node.right)
    if isinstance(node, ast.UnaryOp):
        return _SYMBOLS.get(type(node.op), ""), (node.operand,)
    if isinstance(node, ast.BoolOp):
        return _SYMBOLS[type(node.op)], node.values
    if isinstance(node, ast.IfExp):
        return "if", (node.test, node.body, node.orelse)
    if isinstance(node, (ast.List, ast.Tuple)):
        return LIST, node.elts
    is_plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
    return (node.func.id, node.args) if is_plain else ("", ())  # type: ignore[attr-defined]


# ---- what an expression is worth, which names it reads, how it is written ----


class _Value(Visitor[Any]):
    def __init__(self, grammar: Grammar, names: Mapping[str, Any]) -> None:
        self._operations, self._names = grammar.operations, names

    def literal(self, value: Any) -> Any:
        return value

    def name(self, name: str) -> Any:
        return self._names[name]

    def apply(self, op: str, parts: Sequence[Node]) -> Any:
        operation = self._operations[op]
        if operation.lazy:
            return operation.run(*((lambda part=part: self.visit(part)) for part in parts))
        return operation.run(*map(self.visit, parts))


class _Folded(Visitor[Node]):
    """What the given names decide, as literals."""

    def __init__(self, grammar: Grammar, names: Mapping[str, Any]) -> None:
        self._value, self._names = _Value(grammar, names), names

    def literal(self, value: Any) -> Node:
        return Literal(value)

    def name(self, name: str) -> Node:
        return Literal(self._names[name]) if name in self._names else Name(name)

    def apply(self, op: str, parts: Sequence[Node]) -> Node:
        left = Apply(op, tuple(map(self.visit, parts)))
        is_decided = all(isinstance(part, Literal) for part in left.parts)
        return Literal(self._value.visit(left)) if is_decided else left


class _Text(Visitor[str]):
    """Brackets stand around operators inside of operators."""

    def literal(self, value: Any) -> str:
        return repr(value)

    def name(self, name: str) -> str:
        return name

    def apply(self, op: str, parts: Sequence[Node]) -> str:
        if op in _INFIX:
            return f" {op} ".join(map(self._operand, parts))
        if op in ("not", NEGATE):
            return f"{'-' if op == NEGATE else 'not '}{self._operand(parts[0])}"
        return f"{op}({', '.join(map(self.visit, parts))})"

    def _operand(self, node: Node) -> str:
        text = self.visit(node)
        return f"({text})" if isinstance(node, Apply) and node.op in (*_INFIX, "not") else text


def evaluate(grammar: Grammar, text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        SizeError: it is no such expression.
        KeyError: a name has no value.
        TypeError, ZeroDivisionError: the values do not fit what is done with them.
    """
    return value_of(grammar, parse(grammar, text), names)


def value_of(grammar: Grammar, node: Node, names: Mapping[str, Any]) -> Any:
    """The value of a tree. Raises what `evaluate` raises but SizeError."""
    return _Value(grammar, names).visit(node)


def names_of(grammar: Grammar, text: str) -> tuple[str, ...]:
    """The names that an expression reads, in order of appearance."""
    return tuple(dict.fromkeys(node.name for node in walk(parse(grammar, text)) if isinstance(node, Name)))


def folded(grammar: Grammar, text: str, names: Mapping[str, Any]) -> Node:
    """The tree of an expression with every part that the given names decide as a literal. Raises what
    `evaluate` raises."""
    return _Folded(grammar, names).visit(parse(grammar, text))


def text_of(node: Node) -> str:
    """A tree of operators and calls as a text of its grammar."""
    return _Text().visit(node)


# ---- sizes: integers of 64 bits ----


def _in_64_bits(operation: Operation) -> Operation:
    """As the library computes: a value that does not fit is an error there too."""

    def checked(*values: int) -> int:
        result: int = operation.run(*values)
        if not -_INT64 <= result < _INT64:
            raise OverflowError("a value does not fit 64 bits")
        return result

    return replace(operation, run=checked)


SIZES = Grammar(
    article="a",
    what="size",
    offered="integers, names, + - * // %, comparisons of two, and, or, not, min and max of two, select, "
    "brackets",
    longest=20_000,
    constants=(int, bool),
    operations={
        **{symbol: _in_64_bits(operation) for symbol, operation in ARITHMETIC.items()},
        **COMPARISONS,
        **LOGIC,
        "min": Operation(min),
        "max": Operation(max),
    },
)


def parse_size(text: str) -> Node:
    """The tree of a size. Raises SizeError where it is none."""
    return parse(SIZES, text)


def names_in(text: str) -> tuple[str, ...]:
    """The names that a size reads, in order of appearance, functions left out. Raises SizeError."""
    return names_of(SIZES, text)


def evaluate_size(text: str, values: Mapping[str, Any]) -> int:
    """A size such as ``K // 2`` for the values of its names.

    Raises:
        SizeError: it is no size, a name has no value or none that is an integer, a divisor is 0, or a value
            does not fit 64 bits.
    """
    try:
        given = {name: _whole(values[name]) for name in names_in(text)}
        return int(evaluate(SIZES, text, given))
    except KeyError as error:
        known = ", ".join(values) or "nothing"
        raise SizeError(f"the size {text!r} uses the unknown name {error}", why=f"known: {known}") from error
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise SizeError(f"the size {text!r} has no value", why=str(error)) from error


def _whole(value: Any) -> int:
    """Integers of any kind, NumPy's booleans too."""
    return int(value) if type(value).__name__ in ("bool", "bool_") else operator.index(value)
