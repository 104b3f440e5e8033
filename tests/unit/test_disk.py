"""A full disk is said as one: what was done, where, how much is left, what to do."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from tilec import disk
from tilec.backends.cuda.codegen.compilers import find_compiler
from tilec.codegen.toolchain import Toolchain
from tilec.errors import CompileError, EnvironmentError_
from tilec.package.install import scratch_folder
from tilec.targets import native_host

COMPILER = """#!/bin/sh
echo "some warning" >&2
echo "{said}" >&2
exit 1
"""
SAID = [
    "/usr/bin/ld: final link failed: No space left on device",
    "error: unable to write the object: NoSpaceLeft",
    "fatal error: error writing to /tmp/x.s: Disk quota exceeded",
]


def tools(folder: Path, said: str) -> Toolchain:
    program = folder / "cc"
    program.write_text(COMPILER.format(said=said))
    program.chmod(0o755)
    return Toolchain("cc", (str(program),), ("ar",), native_host())


@pytest.mark.parametrize("said", SAID)
def test_a_compiler_without_room_is_no_compile_error(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    room = {"objects": 3 << 20}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, room.get(Path(path).name, 1 << 40)))
    with pytest.raises(EnvironmentError_) as caught:
        tools(tmp_path, said).compile(tmp_path / "demo.c", tmp_path / "objects")
    assert caught.value.what == "compiling demo.c failed: the disk is full"
    assert str(caught.value.place) == str(tmp_path / "objects")
    assert caught.value.why == f"{said}; 3.0 MiB are free there"
    assert "TMPDIR" in caught.value.remedy
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(("free", "kind"), [(1 << 10, EnvironmentError_), (1 << 30, CompileError)])
def test_a_compiler_that_dies_silently(
    tmp_path: Path, free: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, free))
    dying = tools(tmp_path, "")
    Path(dying.driver[0]).write_text("#!/bin/sh\nkill -6 $$\n")
    with pytest.raises(kind, match=r"No space left" if free < 1 << 20 else "said nothing; its status was -6"):
        dying.compile(tmp_path / "demo.c", tmp_path / "objects")


def test_another_failure_stays_a_compile_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"compiling demo\.c failed"):
        tools(tmp_path, "error: no such thing").compile(tmp_path / "demo.c", tmp_path / "objects")


def test_a_package_without_room(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentError_, match="the disk is full") as caught, scratch_folder(tmp_path):
        raise OSError(28, "No space left on device", str(tmp_path / "scratch" / "library.so"))
    assert str(caught.value.place) == str(tmp_path / "scratch")


def test_llvm_is_not_asked_to_write_without_room(tmp_path: Path) -> None:
    disk.require_room("writing", tmp_path)
    with pytest.raises(EnvironmentError_, match="writing failed: the disk is full"):
        disk.require_room("writing", tmp_path, 1 << 60)


def test_nvcc_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvcc"
    full = "Cannot write: No space left on device"
    program.write_text(
        f'#!/bin/sh\necho "release 12.4"\ncase "$*" in *--version) exit 0;; esac\necho "{full}"\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("TILEC_NVCC", str(program))
    with pytest.raises(EnvironmentError_, match="the disk is full"):
        find_compiler().compile("int a;", "sm_80")
