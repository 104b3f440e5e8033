"""Each fact stands in one place: what a second one would look like is looked for in the sources."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import tilec
from tilec.capacity import CAPACITY
from tilec.dtypes import DTYPES
from tilec.package.library.runtime import runtime_folder
from tilec.portable import loader
from tilec.reserved import C_WORDS
from tilec.targets import REGISTER_FILE

FOLDER = Path(tilec.__file__).parent
#: The loader is one file that stands alone; other tests hold its copies to the originals.
ALONE = "portable/loader.py"


Found = tuple[str, Any]


@cache
def _by_kind() -> dict[type, list[Found]]:
    """Every node of the modules of tilec, with the file that it is in."""
    found: dict[type, list[Found]] = {}
    for file in FOLDER.rglob("*.py"):
        path = file.relative_to(FOLDER).as_posix()
        for node in ast.walk(ast.parse(file.read_bytes())):
            found.setdefault(type(node), []).append((path, node))
    return found


def nodes(*kinds: type[ast.AST]) -> Iterator[Found]:
    """The nodes of these kinds."""
    return (found for kind in kinds for found in _by_kind()[kind])


def texts(node: ast.AST) -> set[str]:
    """The strings in a literal."""
    found = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return {text for text in found if isinstance(text, str)}


def called(node: ast.AST) -> str:
    """The name of the function that is called."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def test_only_authors_code_is_run_as_python() -> None:
    """Wherever Python compiles a text: kernels of the author, functions made of parameter names, and programs
    of the emulator, in which every text of a kernel is a literal."""
    runs = {path for path, node in nodes(ast.Call) if called(node) in ("eval", "exec", "__import__")}
    assert {path.rpartition("/")[2] for path in runs} == {
        *("capture.py", "entries.py", "callers.py"),
        "program.py",
    }
    carriers = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    imported = ({*(alias.name for alias in node.names), getattr(node, "module", None)}
                for _, node in nodes(ast.Import, ast.ImportFrom))  # fmt: skip
    assert not any(names & carriers for names in imported)


def test_sizes_have_one_tree() -> None:
    """Only `tilec.sizes` takes texts of sizes and conditions apart; all others visit its tree."""
    readers = {path for path, node in nodes(ast.Import) if any(name.name == "ast" for name in node.names)}
    rooms = ("manifest/", "package/", "trials/", "tune/", "bench/", "verify/", "lowering/", "emulate/")
    reading_python = {"manifest/sources.py"}
    assert {path for path in readers if path.startswith(rooms)} == reading_python


def test_guards_say_themselves_what_they_admit() -> None:
    """Nobody else compares a value with a guard's bounds; the manifest compares guards with each other."""
    bounds = re.compile(r"guard\.(min|max|eq|div)$")

    def compares(node: ast.Compare) -> bool:
        parts = (node.left, *node.comparators)
        are_values = not any(isinstance(part, ast.Constant) for part in parts)
        return are_values and any(bounds.search(ast.unparse(part)) for part in parts)

    assert {path for path, node in nodes(ast.Compare) if compares(node)} <= {"manifest/guards.py"}


def test_one_table_of_element_types() -> None:
    """Widths and codes of types: a table of most of them that maps each to numbers is a second one."""

    def is_table(node: ast.Dict) -> bool:
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        numbers = {
            each.value for value in node.values for each in ast.walk(value) if type(each) is ast.Constant
        }
        return len(keys & set(DTYPES)) >= 6 and ({16, 32, 64} <= numbers or {2, 4, 8} <= numbers)

    assert {path for path, node in nodes(ast.Dict) if is_table(node)} <= {ALONE}


def test_one_table_of_float_formats() -> None:
    """The largest values of floats of 8 and 16 bits follow from their formats."""
    largest = {448.0, 57344.0, 65504.0}
    found = {
        path for path, node in nodes(ast.Constant) if type(node.value) is float and node.value in largest
    }
    assert not found


def test_one_set_of_words_of_c() -> None:
    """The emulator's C has a grammar of its own, which is a library's."""
    found = {
        path
        for path, node in nodes(ast.Constant, ast.Set, ast.Tuple, ast.List)
        if len(_words(node) & C_WORDS) > len(C_WORDS) // 4
    }
    assert found == {"reserved.py"}


def _words(node: ast.AST) -> set[str]:
    if not isinstance(node, ast.Constant):
        return texts(node)
    return set(node.value.split()) if isinstance(node.value, str) else set()


def test_one_place_for_the_registers_of_a_multiprocessor() -> None:
    found = {
        path for path, node in nodes(ast.Constant) if type(node.value) is int and node.value == REGISTER_FILE
    }
    assert found == {"targets.py"}


@pytest.mark.parametrize("name", ["Work", "JITImpl", "Guard", "Tolerance", "ParamRecord"])
def test_one_class_of_a_name(name: str) -> None:
    assert len([path for path, node in nodes(ast.ClassDef) if node.name == name]) == 1


def test_one_rule_of_nearness() -> None:
    """``atol + rtol * |expected|`` is written once, and no package's function for it is used."""
    rule = re.compile(r"\w*atol \+ .*rtol \* .*")
    sums = {path for path, node in nodes(ast.BinOp) if rule.fullmatch(ast.unparse(node))}
    calls = {path for path, node in nodes(ast.Call) if called(node) in ("isclose", "allclose")}
    assert sums == {"portable/nearness.py"}
    assert not {path for path in calls if not path.startswith("compat/")}


def _layers() -> list[str]:
    """The rooms of the import contract, top first."""
    settings = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())
    road = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [room.strip() for layer in road for room in re.split("[:|]", layer)]


def test_no_module_climbs_by_name() -> None:
    """`import_module` with a name follows the order of imports, which the contract cannot see."""
    rank = {room: number for number, room in enumerate(_layers())}

    def room_of(module: str) -> int | None:
        return next((rank[room] for room in rank if f"{module}.".startswith(f"{room}.")), None)

    for path, node in nodes(ast.Call):
        if called(node) not in ("import_module", "__import__") or not isinstance(node.args[0], ast.Constant):
            continue
        here, there = (
            room_of("tilec." + path.removesuffix(".py").replace("/", ".")),
            room_of(node.args[0].value),
        )
        assert here is None or there is None or here <= there, (path, node.lineno, node.args[0].value)


def test_the_runtime_is_told_its_numbers() -> None:
    """C names what there is room for and defines none of it; the loader, which stands alone, agrees."""
    names = {field.name.upper() for field in fields(CAPACITY)} | {"MOST_BLOCKS", "MAX_TENSOR_MAPS"}
    files = [*(runtime_folder() / "src").rglob("*.[ch]")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert names <= set(re.findall(r"\w+", text))
    assert names & set(re.findall(r"(?<=#define )\w+|\w+(?= *=[^=])", text)) == set()
    assert CAPACITY.max_workers == loader._MOST_WORKERS
