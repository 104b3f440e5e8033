"""Integer expressions over names, as a manifest writes them: "num_attention_heads * head_dim".

Python's syntax with + - * // %, min, max and cdiv (the quotient rounded up); nothing else, and never `eval`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilec.manifest.restricted import ARITHMETIC, Grammar, parse

_FUNCTIONS = ("min", "max", "cdiv")
_OFFERED = f"integers, names, + - * // %, {', '.join(_FUNCTIONS)} of two and brackets"


def check_expression(text: str) -> str:
    """``text`` itself. Raises ValueError for what is no expression of this kind."""
    parse(_GRAMMAR, text)
    return text


def names_of(text: str) -> tuple[str, ...]:
    """The names that an expression reads, in order of appearance."""
    nodes = [node for node in ast.walk(parse(_GRAMMAR, text)) if isinstance(node, ast.Name)]
    nodes.sort(key=lambda node: node.col_offset)
    return tuple(dict.fromkeys(node.id for node in nodes if node.id not in _FUNCTIONS))


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value for given names: integers, or NumPy arrays of them.

    Raises:
        KeyError: a name is not given.
        ZeroDivisionError: a divisor is zero.
    """
    return _value(parse(_GRAMMAR, text), names)


def fold(text: str, names: Mapping[str, int]) -> str:
    """The expression with every part that the given names decide as a number: "tokens * 4096"."""
    return ast.unparse(_folded(parse(_GRAMMAR, text), names))


def _folded(node: ast.expr, names: Mapping[str, int]) -> ast.expr:
    if all(name.id in (*names, *_FUNCTIONS) for name in ast.walk(node) if isinstance(name, ast.Name)):
        return ast.Constant(_value(node, names))
    if isinstance(node, ast.BinOp):
        return ast.BinOp(_folded(node.left, names), node.op, _folded(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return ast.UnaryOp(node.op, _folded(node.operand, names))
    if isinstance(node, ast.Call):
        return ast.Call(node.func, [_folded(part, names) for part in node.args], [])
    return node


def _parts(node: ast.expr) -> Sequence[ast.expr] | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ()
    if isinstance(node, ast.Name) and node.id not in _FUNCTIONS:
        return ()
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return node.left, node.right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return (node.operand,)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords
    if isinstance(node, ast.Call) and is_call and node.func.id in _FUNCTIONS and len(node.args) == 2:  # type: ignore[attr-defined]
        return node.args
    return None


# Far more characters than a size needs.
_GRAMMAR = Grammar("an", "expression", _OFFERED, 200, _parts)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp):
        return _combine(ARITHMETIC[type(node.op)], _value(node.left, names), _value(node.right, names))
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    left, right = (_value(part, names) for part in node.args)
    if node.func.id == "cdiv":
        return -_combine(operator.floordiv, -left, right)
    return _extreme(node.func.id, left, right)


def _combine(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """NumPy would only warn of a divisor of zero."""
    if function in (operator.floordiv, operator.mod) and not _all(right):
        raise ZeroDivisionError("a divisor is zero")
    return function(left, right)


def _all(value: Any) -> bool:
    return bool(value.all() if hasattr(value, "all") else value)


def _extreme(name: str, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if name == "min" else max(left, right)
    import numpy as np

    return np.minimum(left, right) if name == "min" else np.maximum(left, right)
