"""Names in comprehensions: Python 3.12.1 takes one for a variable of the function around it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
#: Two comprehensions of one function, `index` a variable in one and a global in the other.
BROKEN = "def f(a):\n    b = [index for index in a]\n    return [index(at) for at in b]\n"


def shadowed(function: ast.AST, known: set[str]) -> set[str]:
    """The names of a module that a function reads while one of its comprehensions has such a variable."""
    own = [node for node in ast.walk(function) if isinstance(node, COMPREHENSIONS)]
    return {name for each in own for name in known & variables(each) if name in read(function, each)}


def variables(comprehension: ast.ListComp | ast.SetComp | ast.DictComp) -> set[str]:
    """The names that a comprehension gives values."""
    targets = (node for part in comprehension.generators for node in ast.walk(part.target))
    return {node.id for node in targets if isinstance(node, ast.Name)}


def read(function: ast.AST, without: ast.AST) -> set[str]:
    """The names that a function reads outside of a part."""
    inside = set(map(id, ast.walk(without)))
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Name) and id(node) not in inside)
    return {node.id for node in nodes if isinstance(node.ctx, ast.Load)}


def found_in(text: str) -> set[str]:
    """`shadowed` of all functions of a module."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    known = {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}
    known |= {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {name for function in functions for name in shadowed(function, known)}


def test_what_breaks_is_found() -> None:
    assert found_in("def index(at): ...\n" + BROKEN) == {"index"}
    assert found_in(BROKEN) == set()


@pytest.mark.parametrize("room", ["tilec", "examples"])
def test_no_comprehension_hides_what_its_function_calls(room: str) -> None:
    paths = (ROOT / room).rglob("*.py")
    found = {str(path.relative_to(ROOT)): found_in(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
