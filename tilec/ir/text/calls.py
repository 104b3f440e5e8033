"""Calls of bare words in the text of tile IR, with their arguments, and tables of what is asked for."""

from __future__ import annotations

import ast
from collections.abc import Container
from typing import Any

from tilec.ir.text.expr_parser import fail


class Call:
    """``word(args, key=value)`` with access to literal parts."""

    def __init__(self, node: ast.Call, word: str) -> None:
        self.node, self.word, self.args = node, word, node.args
        self.keywords = {item.arg: item.value for item in node.keywords if item.arg}

    def arg(self, place: int) -> ast.expr:
        """The positional argument at ``place``."""
        if place >= len(self.args):
            raise fail(self.node, f"{self.word} needs {place + 1} arguments")
        return self.args[place]

    def literal(self, key: int | str, default: Any = None) -> Any:
        """A Python literal: by position, or by keyword with a default."""
        node = self.arg(key) if isinstance(key, int) else self.keywords.get(key)
        return default if node is None else ast.literal_eval(node)

    def items(self, key: int | str) -> list[ast.expr]:
        """The entries of a tuple argument; none for a missing keyword."""
        node = self.arg(key) if isinstance(key, int) else self.keywords.get(key)
        if node is not None and not isinstance(node, ast.Tuple):
            raise fail(node, f"expected a tuple, found {ast.unparse(node)}")
        return [] if node is None else node.elts


def called(node: ast.AST) -> Call | None:
    """The call that ``node`` is, of a bare word."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Call(node, node.func.id)
    return None


def asked_of(node: ast.AST, known: Container[str]) -> dict[str, Any]:
    """What is asked for, by key; IRError for a key that is not ``known``."""
    given = dict(ast.literal_eval(node))
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise fail(node, f"nothing asks for {unknown}")
    return given
