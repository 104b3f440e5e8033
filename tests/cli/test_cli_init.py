from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.targets import native_host


def test_init_writes_a_project_named_after_its_folder(tilec: Callable, tmp_path: Path) -> None:
    assert tilec("init", "my-lib").code == 0
    assert 'name = "my_lib"' in (tmp_path / "my-lib" / "my_lib.toml").read_text()
    assert "my_lib_saxpy(" in (tmp_path / "my-lib" / "main.c").read_text()
    texts = [path.read_text() for path in (tmp_path / "my-lib").rglob("*") if path.is_file()]
    assert not any("@NAME@" in text or "@TARGETS@" in text for text in texts)


@pytest.mark.parametrize(
    ("folder", "library"), [("3d", "lib_3d"), ("double", "lib_double"), ("tilec-x", "lib_tilec_x")]
)
def test_names_that_c_would_refuse_get_a_prefix(
    tilec: Callable, tmp_path: Path, folder: str, library: str
) -> None:
    assert tilec("init", folder).code == 0
    assert (tmp_path / folder / f"{library}.toml").exists()


def test_the_next_command_can_be_pasted(tilec: Callable) -> None:
    assert tilec("init", "my lib").out.endswith("next: cd 'my lib' && tilec build my_lib.toml\n")


def test_init_overwrites_nothing(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "main.c").write_text("mine")
    outcome = tilec("init", "p")
    assert outcome.code == 2
    assert "main.c exists" in outcome.err
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["main.c"]


def test_a_folder_that_cannot_be_made_is_refused(tilec: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = tilec("init", "file/p")
    assert outcome.code == 1
    assert "the output folder file/p cannot be written" in outcome.err
    assert "choose another, or make it writable" in outcome.err


def test_the_project_builds_verifies_and_its_c_program_runs(
    tilec: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tilec("init", "demo").code == 0
    folder = tmp_path / "demo"
    outcome = tilec(
        "build", folder / "demo.toml", "-o", folder / "dist" / "demo", "--target", native_level(), "-j", "1"
    )
    assert outcome.code == 0, outcome.err
    readme = (folder / "README.md").read_text()
    verify_line = next(line for line in readme.splitlines() if line.startswith("tilec verify"))
    monkeypatch.chdir(folder)
    verified = tilec(*verify_line.partition("#")[0].split()[1:])
    assert (verified.code, "reference" in verified.out) == (0, True), verified.err
    compile_line = next(line for line in readme.splitlines() if "ziglang cc" in line)
    command = [sys.executable, *compile_line.split()[1:]]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "out[10] = 21 (expected 21)\n"


def native_level() -> str:
    """The lowest target of the project that runs here."""
    return {"x86_64": "x86-64-v2", "aarch64": "aarch64"}[native_host().arch]
