"""The ABI as it was recorded: what a program of that day was compiled with still holds.

``recorded/layout.txt`` and ``recorded/include`` are the layout and the header of ABI 1. They change only by
rows and declarations that are appended; what else makes these tests fail breaks programs in the field, and
wants a new TILEC_ABI_VERSION."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.package.library.runtime import runtime_folder

RECORDED = Path(__file__).parent / "recorded"
ROW = re.compile(r"^(?:FIELD|VALUE)\(.*\)$", re.MULTILINE)
SIZE = re.compile(r"^SIZE\((\w+), (\d+)\)$", re.MULTILINE)
FIELD = re.compile(r"^FIELD\((\w+), (\w+), (\d+), (\d+)\)$", re.MULTILINE)


def layout() -> str:
    """The rows that every build of a library asserts."""
    return (runtime_folder() / "src" / "layout.h").read_text(encoding="utf-8")


def header() -> str:
    return (runtime_folder() / "include" / "tilec" / "tilec.h").read_text(encoding="utf-8")


def test_the_layout_is_the_recorded_one() -> None:
    recorded = (RECORDED / "layout.txt").read_text(encoding="utf-8").splitlines()
    now = ROW.findall(layout())
    assert now[: len(recorded)] == recorded
    assert len(now) == len(recorded), "append the new rows to recorded/layout.txt"


def structs() -> set[str]:
    """The structs that the header defines."""
    return set(re.findall(r"struct (tilec_\w+) \{", header()))


def test_every_struct_is_in_the_layout() -> None:
    assert structs() == {name for name, *_ in FIELD.findall(layout()) if name.startswith("tilec_")}


def test_fields_leave_no_gap() -> None:
    """So that no field, and no padding, is missing: a row starts where the one before ended."""
    ends: dict[str, int] = {}
    for name, field, at, size in FIELD.findall(layout()):
        if name.startswith("tilec_"):
            assert ends.get(name, 0) == int(at), f"{name}.{field}"
            ends[name] = int(at) + int(size)
    assert ends == {name: int(size) for name, size in SIZE.findall(layout())}


def test_every_constant_is_in_the_layout() -> None:
    enums = " ".join(
        re.findall(r"enum\s*\{(.*?\})", re.sub(r"/\*.*?\*/", "", header(), flags=re.DOTALL), re.DOTALL)
    )
    named = re.findall(r"\b(TILEC_[A-Z0-9_]+)\b(?=\s*[=,}])", enums)
    assert sorted(named) == sorted(re.findall(r"^VALUE\((\w+),", layout(), re.MULTILINE))


@pytest.mark.parametrize("flags", [("-std=c11",), ("-std=c++17", "-x", "c++")], ids=["c11", "c++17"])
def test_a_program_of_the_recorded_header_runs(program: Callable[..., Path], flags: tuple[str, ...]) -> None:
    made = program("typed.c", *flags, "-I", str(RECORDED / "include"))
    done = subprocess.run([made], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("ok\n", 0)
