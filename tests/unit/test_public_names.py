"""What type checkers are told of the names of `tilec` is what they are."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import tilec

STUB = ast.parse(Path(tilec.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))


def told() -> dict[str, object]:
    """The public names of the stub and the objects that they stand for."""
    found = {
        alias.asname: getattr(import_module(stmt.module.replace(".compat.", ".")), alias.name)
        for stmt in STUB.body
        if isinstance(stmt, ast.ImportFrom) and stmt.module and stmt.module.startswith("tilec.")
        for alias in stmt.names
    }
    for stmt in STUB.body:
        if isinstance(stmt, ast.Assign):
            found[ast.unparse(stmt.targets[0])] = found[ast.unparse(stmt.value)]
    return {name: value for name, value in found.items() if name and not name.startswith("_")}


def test_type_checkers_know_every_name() -> None:
    assert set(told()) == set(tilec._LAZY)


def test_types_are_those_of_the_names() -> None:
    assert [name for name, value in told().items() if getattr(tilec, name) is not value] == []
