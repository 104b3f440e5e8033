"""Where `source = "file.py:attr"` and `"package.module:attr"` point, without importing the kernel."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from tilec.errors import ManifestError, Place
from tilec.spelling import suggestion

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def source_file(source: str, base: Path) -> Path | None:
    """The Python file of a source text; None when there is none. Importable names may import the packages
    above the module, never the module."""
    where = source.rpartition(":")[0]
    if where.endswith(".py"):
        path = base / where
        return path if path.is_file() else None
    local = base.joinpath(*where.split(".")).with_suffix(".py")
    if local.is_file():
        return local
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def source_sha256(source: str, base: Path) -> str:
    """The hash of the kernel's source file; "" when it cannot be read."""
    path = source_file(source, base)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else ""


def source_text(source: str, base: Path) -> str:
    """The text of the kernel's source file; "" when it cannot be read."""
    path = source_file(source, base)
    return path.read_text(encoding="utf-8", errors="replace") if path is not None else ""


def check_source_name(source: str, base: Path, place: Place, what: str) -> None:
    """Raises ManifestError where the file of a source text, which is ``what``, surely has no such name. It
    exists, is read as text and not run. What the file imports is a name of it, but none that was meant."""
    path, name = source_file(source, base), source.rpartition(":")[2].partition(".")[0]
    names = None if path is None else _names_in(path.read_bytes())
    if names is None or name in (*names.own, *names.imported):
        return
    raise ManifestError(
        f'{what} "{source}" does not exist',
        place=place,
        why=f'{path} has no "{name}" at its top level',
        remedy=suggestion(name, sorted(names.own)),
    )


class _Names(NamedTuple):
    """The names at the top level of a file: those that it defines, and those that it imports."""

    own: frozenset[str]
    imported: frozenset[str]


@lru_cache(maxsize=64)
def _names_in(text: bytes) -> _Names | None:
    """The names of a Python file; None where they cannot be read off, as they come from other files or are
    made while it runs."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    own = frozenset(name for stmt in tree.body for name in _defined_by(stmt))
    imported = frozenset(name for stmt in tree.body for name in _imported_by(stmt))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    is_open = (own | imported) & {"*", "__getattr__"} or called & {"exec", "globals", "vars", "setattr"}
    return None if is_open else _Names(own, imported)


def _defined_by(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives a meaning to itself, those of blocks inside of it too."""
    if isinstance(node, _DEFINITIONS):
        yield node.name
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for part in ast.iter_child_nodes(node):
        yield from _defined_by(part)


def _imported_by(node: ast.AST) -> Iterator[str]:
    """The names that a statement imports, those of blocks inside of it too."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    if isinstance(node, _DEFINITIONS):
        return
    for part in ast.iter_child_nodes(node):
        yield from _imported_by(part)


def check_source_file(source: str, base: Path, place: Place, what: str) -> None:
    """Raises ManifestError when the file or module of a source text, which is ``what``, does not exist."""
    if source_file(source, base) is not None:
        return
    where = source.rpartition(":")[0]
    if not where.endswith(".py"):
        raise ManifestError(
            f'{what} module "{where}" cannot be found',
            place=place,
            remedy='install it, or write a path relative to the manifest: "kernels/file.py:name"',
        )
    folder = (base / where).parent
    files = [str(path.relative_to(base)) for path in sorted(folder.glob("*.py")) if path.is_file()]
    state = "is no file" if (base / where).exists() else "does not exist"
    raise ManifestError(
        f'{what} "{where}" {state}',
        place=place,
        why=f"sources are relative to {base}",
        remedy=_right_path(where, files),
    )


def _right_path(where: str, files: list[str]) -> str:
    if "\\" in where:
        return f'write paths with /: "{PureWindowsPath(where).as_posix()}"'
    return suggestion(where, files) if files else "correct the path"
