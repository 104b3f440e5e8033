"""Conditions over names, as `where` of a tuning space writes them: "bM * bN <= 32768 and num_stages > 1".

Python's syntax with arithmetic, comparisons (chained ones too), `and`, `or`, `not`, `in`, min, max, abs and
conditional expressions over integers, floats, strings, booleans and lists of them; nothing else is run, and
never `eval`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilec.manifest.restricted import ARITHMETIC, Grammar, parse

_BINARY = {**ARITHMETIC, ast.Div: operator.truediv}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Not: operator.not_}
_CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "select": lambda condition, one, other: one if condition else other,
}
_OFFERED = "numbers, strings, names, + - * / // %, comparisons, in, and, or, not, if-else, min, max, abs"


def check_condition(text: str) -> str:
    """``text`` itself. Raises ValueError for what is no condition."""
    parse(_GRAMMAR, text)
    return text


def names_in(text: str) -> tuple[str, ...]:
    """The names that a condition reads, sorted."""
    found = {node.id for node in ast.walk(parse(_GRAMMAR, text)) if isinstance(node, ast.Name)}
    return tuple(sorted(found - set(_CALLS)))


def holds(text: str, names: Mapping[str, Any]) -> bool:
    """Whether a condition holds for the values of its names. Raises what `evaluate` raises."""
    return bool(evaluate(text, names))


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression.

    Raises:
        KeyError: a name has no value.
        TypeError, ZeroDivisionError: the values do not fit what is done with them.
    """
    return _value(parse(_GRAMMAR, text), names)


def _parts(node: ast.expr) -> Sequence[ast.expr] | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        return []
    if isinstance(node, ast.Name) and node.id not in _CALLS:
        return []
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return [node.operand]
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and _called(node) in _CALLS and node.args and not node.keywords:
        return node.args
    return None


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


_GRAMMAR = Grammar("a", "condition", _OFFERED, 4000, _parts)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(part, names) for part in node.elts]
    if isinstance(node, ast.BoolOp):
        results = (_value(part, names) for part in node.values)
        return all(results) if isinstance(node.op, ast.And) else any(results)
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, names) else node.orelse, names)
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Compare):
        return _compared(node, names)
    assert isinstance(node, ast.Call)
    return _CALLS[_called(node)](*(_value(part, names) for part in node.args))


def _compared(node: ast.Compare, names: Mapping[str, Any]) -> bool:
    """A chain holds when each link does."""
    values = [_value(part, names) for part in (node.left, *node.comparators)]
    links = zip(values, node.ops, values[1:], strict=False)
    return all(_COMPARE[type(op)](left, right) for left, op, right in links)
