"""A part of Python's expressions, for what a manifest computes: parsed and checked node by node, never run as
Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

#: Arithmetic that every part offers.
ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class Grammar:
    """What is offered. In messages an expression is called ``what``, with its ``article``, and ``offered``
    says what it is made of; it has at most ``longest`` characters, as Python's parser cannot be sent too
    deep. ``parts`` gives what a node is made of, None for one that is not offered."""

    article: str
    what: str
    offered: str
    longest: int
    parts: Callable[[ast.expr], Sequence[ast.expr] | None]


@lru_cache(maxsize=2048)
def parse(grammar: Grammar, text: str) -> ast.expr:
    """The tree of ``text``. Raises ValueError where it is no such expression."""
    if len(text) > grammar.longest:
        name = f"{grammar.article} {grammar.what}"
        raise ValueError(f"{name} has at most {grammar.longest} characters, this one {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f'"{text}" is no {grammar.what}: {error.msg}') from error
    _check(grammar, text, tree)
    return tree


def _check(grammar: Grammar, text: str, node: ast.expr) -> None:
    """Every node must be of a kind that is offered."""
    parts = grammar.parts(node)
    if parts is None:
        name = f"{grammar.article} {grammar.what}"
        raise ValueError(f'"{text}" has "{ast.unparse(node)}", and {name} is made of {grammar.offered}')
    for part in parts:
        _check(grammar, text, part)
