"""Texts that compute: a part of Python's expressions, parsed and checked node by node, valued by a walk over
the tree. No text is ever run as Python.

A `Grammar` says which part. `SIZES` is that of extents, strides, grids and workspaces, which libraries carry
in their metadata and tile IR, so that anybody may have written them; manifests have grammars of their own.
The loader, a single file, walks over sizes by itself, to the same values.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from tilec.errors import InputError

#: Arithmetic that every grammar offers.
ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
#: Deeper than people and the lowering write, and far from the depth of Python's own stack.
_DEEPEST = 100
_INT64 = 1 << 63


class SizeError(InputError, ValueError):
    """A text that is no size, or a size without a value."""


class Function(NamedTuple):
    """A function that a grammar offers, and how many arguments it takes (``most`` None: any number). A
    ``lazy`` one gets functions of no arguments in place of values."""

    run: Callable[..., Any]
    fewest: int
    most: int | None
    lazy: bool = False


def _selected(condition: Callable[[], Any], yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    return yes() if condition() else no()


#: ``select(condition, yes, no)`` computes one of the two alone, as C does.
SELECT = Function(_selected, 3, 3, lazy=True)


@dataclass(frozen=True, eq=False)
class Grammar:
    """What is offered. In messages an expression is called ``what``, with its ``article``, and ``offered``
    says what it is made of; it has at most ``longest`` characters. ``constants`` are the types of literals;
    ``words``: whether it has ``and`` and ``or``; ``rich``: whether it has chained comparisons, lists and
    ``a if b else c`` too."""

    article: str
    what: str
    offered: str
    longest: int
    constants: tuple[type, ...]
    functions: Mapping[str, Function]
    unary: Mapping[type, Callable[[Any], Any]]
    binary: Mapping[type, Callable[[Any, Any], Any]] = field(default_factory=lambda: ARITHMETIC)
    compare: Mapping[type, Callable[[Any, Any], Any]] = field(default_factory=dict)
    words: bool = False
    rich: bool = False


@lru_cache(maxsize=4096)
def parse(grammar: Grammar, text: str) -> ast.expr:
    """The tree of ``text``. Raises SizeError where it is no such expression."""
    name = f"{grammar.article} {grammar.what}"
    if len(text) > grammar.longest:
        raise SizeError(f"{name} has at most {grammar.longest} characters, this one {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
        raise SizeError(f'"{text}" is no {grammar.what}: {why}') from error
    _check(grammar, text, tree, 0)
    return tree


def _check(grammar: Grammar, text: str, node: ast.expr, depth: int) -> None:
    """Every node must be of a kind that is offered."""
    shape = _SHAPES.get(type(node))
    parts = None if shape is None else shape(grammar, node)
    if parts is None:
        name = f"{grammar.article} {grammar.what}"
        raise SizeError(f'"{text}" has "{ast.unparse(node)}", and {name} is made of {grammar.offered}')
    if depth > _DEEPEST:
        raise SizeError(f'"{text}" is no {grammar.what}: it is nested more than {_DEEPEST} deep')
    for part in parts:
        _check(grammar, text, part, depth + 1)


def evaluate(grammar: Grammar, text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        SizeError: it is no such expression.
        KeyError: a name has no value.
        TypeError, ZeroDivisionError: the values do not fit what is done with them.
    """
    return value_of(grammar, parse(grammar, text), names)


def value_of(grammar: Grammar, node: ast.expr, names: Mapping[str, Any]) -> Any:
    """As `evaluate`, of a tree that `parse` gave."""
    return _VALUES[type(node)](grammar, node, names)


def names_of(grammar: Grammar, text: str) -> tuple[str, ...]:
    """The names that an expression reads, in order of appearance."""
    return tuple(dict.fromkeys(_names(grammar, parse(grammar, text))))


def _names(grammar: Grammar, node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for part in _SHAPES[type(node)](grammar, node) or ():
        yield from _names(grammar, part)


# ---- kinds of nodes: what they are made of (None: not offered) ----

_Parts = Sequence[ast.expr] | None


def _of_operands(allowed: Callable[[Grammar], Mapping[type, Any]], *fields: str) -> Callable[..., _Parts]:
    def shape(grammar: Grammar, node: Any) -> _Parts:
        return [getattr(node, name) for name in fields] if type(node.op) in allowed(grammar) else None

    return shape


def _of_comparison(grammar: Grammar, node: ast.Compare) -> _Parts:
    is_known = all(type(op) in grammar.compare for op in node.ops)
    return [node.left, *node.comparators] if is_known and (grammar.rich or len(node.ops) == 1) else None


def _of_call(grammar: Grammar, node: ast.Call) -> _Parts:
    function = grammar.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None or node.keywords or len(node.args) < function.fewest:
        return None
    return node.args if function.most is None or len(node.args) <= function.most else None


_SHAPES: dict[type, Callable[[Grammar, Any], _Parts]] = {
    ast.Constant: lambda grammar, node: () if type(node.value) in grammar.constants else None,
    ast.Name: lambda grammar, node: None if node.id in grammar.functions else (),
    ast.List: lambda grammar, node: node.elts if grammar.rich else None,
    ast.Tuple: lambda grammar, node: node.elts if grammar.rich else None,
    ast.IfExp: lambda grammar, node: [node.test, node.body, node.orelse] if grammar.rich else None,
    ast.BoolOp: lambda grammar, node: node.values if grammar.words else None,
    ast.UnaryOp: _of_operands(lambda grammar: grammar.unary, "operand"),
    ast.BinOp: _of_operands(lambda grammar: grammar.binary, "left", "right"),
    ast.Compare: _of_comparison,
    ast.Call: _of_call,
}

# ---- kinds of nodes: what they are worth ----


def _connected(grammar: Grammar, node: ast.BoolOp, names: Mapping[str, Any]) -> bool:
    results = (value_of(grammar, part, names) for part in node.values)
    return all(results) if isinstance(node.op, ast.And) else any(results)


def _compared(grammar: Grammar, node: ast.Compare, names: Mapping[str, Any]) -> bool:
    """A chain holds when each link does."""
    values = [value_of(grammar, part, names) for part in (node.left, *node.comparators)]
    links = zip(values, node.ops, values[1:], strict=False)
    return all(grammar.compare[type(op)](left, right) for left, op, right in links)


def _chosen(grammar: Grammar, node: ast.IfExp, names: Mapping[str, Any]) -> Any:
    return value_of(grammar, node.body if value_of(grammar, node.test, names) else node.orelse, names)


def _called(grammar: Grammar, node: ast.Call, names: Mapping[str, Any]) -> Any:
    function = grammar.functions[node.func.id]  # type: ignore[attr-defined]
    if function.lazy:
        return function.run(*((lambda part=part: value_of(grammar, part, names)) for part in node.args))
    return function.run(*(value_of(grammar, part, names) for part in node.args))


_VALUES: dict[type, Callable[[Grammar, Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda grammar, node, names: node.value,
    ast.Name: lambda grammar, node, names: names[node.id],
    ast.List: lambda grammar, node, names: [value_of(grammar, part, names) for part in node.elts],
    ast.Tuple: lambda grammar, node, names: [value_of(grammar, part, names) for part in node.elts],
    ast.IfExp: _chosen,
    ast.BoolOp: _connected,
    ast.UnaryOp: lambda grammar, node, names: grammar.unary[type(node.op)](
        value_of(grammar, node.operand, names)
    ),
    ast.BinOp: lambda grammar, node, names: grammar.binary[type(node.op)](
        value_of(grammar, node.left, names), value_of(grammar, node.right, names)
    ),
    ast.Compare: _compared,
    ast.Call: _called,
}

# ---- sizes: integers of 64 bits ----


def _in_64_bits(run: Callable[..., int]) -> Callable[..., int]:
    """As the library computes: a value that does not fit is an error there too."""

    def checked(*values: int) -> int:
        result = run(*values)
        if not -_INT64 <= result < _INT64:
            raise OverflowError("a value does not fit 64 bits")
        return result

    return checked


SIZES = Grammar(
    article="a",
    what="size",
    offered="integers, names, + - * // %, comparisons of two, and, or, not, min and max of two, select, "
    "brackets",
    longest=20_000,
    constants=(int, bool),
    functions={"min": Function(min, 2, 2), "max": Function(max, 2, 2), "select": SELECT},
    unary={ast.USub: _in_64_bits(operator.neg), ast.Not: operator.not_},
    binary={kind: _in_64_bits(run) for kind, run in ARITHMETIC.items()},
    compare=COMPARISONS,
    words=True,
)


def parse_size(text: str) -> ast.expr:
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
    tree = parse_size(text)
    try:
        given = {name: _whole(values[name]) for name in names_in(text)}
        return int(value_of(SIZES, tree, given))
    except KeyError as error:
        known = ", ".join(values) or "nothing"
        raise SizeError(f"the size {text!r} uses the unknown name {error}", why=f"known: {known}") from error
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise SizeError(f"the size {text!r} has no value", why=str(error)) from error


def _whole(value: Any) -> int:
    """Integers of any kind, NumPy's booleans too."""
    return int(value) if type(value).__name__ in ("bool", "bool_") else operator.index(value)
