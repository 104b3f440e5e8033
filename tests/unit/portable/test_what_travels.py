"""What is carried to machines without the toolchain loads there."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilec import portable
from tilec.package.bindings.python import COPIED, FOR_TORCH

FOLDER = Path(portable.__file__).parent
#: Files that need more than the standard library, and what.
MARKED = {
    "guarded.py": {"numpy"},
    "jax_gradients.py": {"jax"},
    "jax_ops.py": {"jax", "tvm_ffi"},
    "jax_targets.py": {"jax", "jax_tvm_ffi", "numpy"},
    **{f"torch_{part}.py": {"torch"} for part in ("autocast", "gradients", "ops")},
}


def _imported(statements: list[ast.stmt]) -> Iterator[str]:
    """The packages that are imported when a module is."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def test_it_needs_the_standard_library_and_itself() -> None:
    for path in FOLDER.rglob("*.py"):
        names = set(_imported(ast.parse(path.read_bytes()).body))
        foreign = {name for name in names if not name.startswith("tilec.portable")}
        foreign = {name.partition(".")[0] for name in foreign} - set(sys.stdlib_module_names)
        assert foreign == MARKED.get(path.relative_to(FOLDER).as_posix(), set()), path


@pytest.mark.parametrize("files", [COPIED, FOR_TORCH])
def test_a_package_has_all_that_its_files_import(files: tuple[str, ...]) -> None:
    nodes = (node for name in files for node in ast.walk(ast.parse((FOLDER / name).read_bytes())))
    beside = {f"{node.module}.py" for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
    assert beside <= set(files)


def test_it_loads_without_anything_else() -> None:
    program = (
        "import sys, tilec.portable.timing, tilec.portable.graphs, tilec.portable.runner.main; "
        "print(*(name for name in ('tvm', 'numpy', 'pydantic', 'click') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
