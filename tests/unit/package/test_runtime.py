"""The object of the C runtime is compiled once for libraries of one kind, and for each kind anew."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from records import spec

from tilec.codegen import toolchain
from tilec.codegen.toolchain import Toolchain, find_toolchain
from tilec.package.library import runtime
from tilec.package.library.runtime import runtime_object, runtime_source


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The C files that are compiled from here on, by a process that has met none, with a cache of its own."""
    names: list[str] = []
    compile_one = Toolchain.compile

    def noted(self, source, *args, **options):
        names.append(source.name)
        return compile_one(self, source, *args, **options)

    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(runtime, "_met", {})
    monkeypatch.setattr(Toolchain, "compile", noted)
    return names


def make(folder: Path, name: str = "demo", text: str = "") -> str:
    """The digest of the object for a library of this name."""
    folder.mkdir(exist_ok=True)
    source = folder / f"{name}_runtime.c"
    source.write_text(runtime_source(spec()) + text, encoding="utf-8")
    made = runtime_object(find_toolchain(), source, folder / "made")
    assert made == folder / "made" / f"{name}_runtime.o"
    return hashlib.sha256(made.read_bytes()).hexdigest()


def test_libraries_of_one_kind_share_it(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(tmp_path / "one")
    assert make(tmp_path / "two", "other") == first
    monkeypatch.setattr(runtime, "_met", {})
    assert make(tmp_path / "three") == first, "another process finds it in the cache"
    assert compiled == ["demo_runtime.c"]


def test_what_it_is_made_of_decides(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    make(tmp_path, text="/* of another kind */\n")
    monkeypatch.setattr(runtime, "runtime_bytes", lambda: b"another runtime")
    make(tmp_path)
    flags = tuple("-O1" if each == "-O2" else each for each in toolchain._C_FLAGS)
    monkeypatch.setattr(toolchain, "_C_FLAGS", flags)
    make(tmp_path)
    assert len(compiled) == 4
    make(tmp_path)
    assert len(compiled) == 4


@pytest.mark.parametrize("setting", ["0", "1"])
def test_a_process_makes_it_once_without_a_cache(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (tmp_path / "cache").write_text("a file, where a cache cannot be")
    monkeypatch.setenv("TILEC_CACHE", setting)
    assert make(tmp_path) == make(tmp_path)
    assert compiled == ["demo_runtime.c"]
