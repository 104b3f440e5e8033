"""Which modules ask what family a target is of: the families alone. All others ask the family, or a feature
of the target."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tilec

ROOT = Path(tilec.__file__).parent
_NAMES = re.compile(r"(cpu|cuda|hip|metal|metal3|x86_64|aarch64|(sm|compute)_\d*\w?|gfx\w*|x86-64(-v\d)?)$")
_QUESTIONS = {"is_cpu", "is_cuda", "is_gpu", "startswith", "endswith", "removeprefix"}
_FAMILY = re.compile(r"tilec\.backends\.(cpu|cuda|hip|metal)\b")
#: Who may, and why.
ALLOWED = {
    "backends/__init__.py": "registers the families that ship",
    "cli/commands/bench.py": "the clock of the CPU, which is no family",
    "compat/": "names of other packages, which know CUDA and the CPU",
    "cpu_bits.py": "the facts of processors, by their architecture",
    "emulate/": "runs the device code of CUDA",
    "inprocess/measuring/bench.py": "the devices of torch",
    "language/frontend/catalogue.py": "tells readers what becomes of a construct on each",
    "targets.py": "the table of facts",
}


def questions(source: str) -> Iterator[str]:
    """What a module asks by the name of a family or of a target, and the imports of one."""
    for node in ast.walk(ast.parse(source)):
        if _asks(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(map(_is_name, [node.left, *node.comparators]))
    if isinstance(node, ast.IfExp):
        return any(map(_is_name, [node.body, node.orelse]))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _QUESTIONS and any(map(_is_name, node.args))
    if isinstance(node, ast.Attribute):
        return node.attr in _QUESTIONS and node.attr.startswith("is_")
    return isinstance(node, ast.ImportFrom) and _FAMILY.match(node.module or "") is not None


def _is_name(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.Set, ast.List)):
        return any(map(_is_name, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_NAMES.match(node.value))


def _asking() -> dict[str, list[str]]:
    """Files that ask, and what."""
    names = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
    own = ("backends/cpu/", "backends/cuda/", "backends/hip/", "backends/metal/")
    found = {
        name: list(questions(path.read_text())) for name, path in names.items() if not name.startswith(own)
    }
    return {name: asked for name, asked in found.items() if asked}


def test_nobody_else_asks_for_a_family_by_its_name() -> None:
    asking = _asking()
    assert {name: asked for name, asked in asking.items() if not name.startswith(tuple(ALLOWED))} == {}
    idle = [who for who in ALLOWED if not any(name.startswith(who) for name in asking)]
    assert idle == [], "nobody there asks any more: leave them out of the list"


def test_questions_are_seen() -> None:
    source = """
if target.is_cpu or name == "cuda" or kind in ("cpu", "c"): pass
where = "cpu" if number is None else "gpu"
if target.name.startswith("sm_"): pass
from tilec.backends.cuda import table
if word == "gpu" or value.startswith("s"): pass
"""
    assert len(list(questions(source))) == 6


def test_the_runtime_knows_the_families_by_their_files_alone() -> None:
    asking = re.compile(r"\bkDL(CUDA|ROCM|Metal)\b|\bis_cuda\b|\b(cuda|hip|metal)_\w+\(|NUM_CUDA")
    sources = sorted((ROOT.parent / "runtime_c" / "src").rglob("*.[ch]"))
    shared = [path for path in sources if not path.name.startswith(("cuda", "hip", "metal"))]
    assert shared
    assert [path.name for path in shared if asking.search(path.read_text())] == []
