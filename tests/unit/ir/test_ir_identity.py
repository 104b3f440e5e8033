"""Statements are keys of tables themselves: no number of an object that may be gone stands for one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tilec
from tilec.ir import nodes as ir


def _asks_for_ids(file: Path) -> bool:
    text = file.read_text()
    if re.search(r"\bid\b", text) is None:
        return False
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "id" for call in calls)


def test_no_module_asks_for_the_id_of_an_object():
    root = Path(tilec.__file__).parent
    assert [str(file.relative_to(root)) for file in root.rglob("*.py") if _asks_for_ids(file)] == []


def test_a_statement_is_equal_to_itself_alone():
    first, second = ir.Break(), ir.Break()
    table = {first: 1, second: 2}
    assert (table[first], table[second], first == second) == (1, 2, False)
