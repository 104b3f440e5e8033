"""The order of the language's modules: no circle of imports, and none that a function hides."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import tilec.language as T

FOLDER = Path(T.__file__).parent
#: What loads TVM or NumPy, which importing T does not.
HEAVY = {
    ("frontend.elaborate", "frontend.review.remarks"),
    ("threads.hints", "threads.asked_layouts"),
    ("threads.launches", "threads.thread_level"),
    ("values.layouts.asked_hints", "values.layouts.digit_maps"),
}


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    for node in (inner for stmt in body for inner in ast.walk(stmt)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _own(names: Iterator[str]) -> set[str]:
    modules = (name.removeprefix("tilec.language.") for name in names if name.startswith("tilec.language"))
    return {name for name in modules if (FOLDER / f"{name.replace('.', '/')}.py").is_file()}


def _files() -> Iterator[tuple[str, list[ast.stmt]]]:
    for path in sorted(FOLDER.rglob("*.py")):
        name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        yield name, ast.parse(path.read_text()).body


def test_modules_import_each_other_in_no_circle() -> None:
    order = {
        name: _own(_imports([stmt for stmt in body if isinstance(stmt, (ast.Import, ast.ImportFrom))]))
        for name, body in _files()
    }
    assert len(list(TopologicalSorter(order).static_order())) > 70


def test_no_function_imports_a_module_of_the_language() -> None:
    inside = {
        (name, found)
        for name, body in _files()
        for stmt in body
        for function in ast.walk(stmt)
        if isinstance(function, ast.FunctionDef)
        for found in _own(_imports(function.body))
    }
    assert inside == HEAVY


def test_importing_the_namespace_is_light() -> None:
    code = "import sys, tilec.language; print({'tvm', 'numpy', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
