from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tilec.cli.main as main
from tilec.errors import CompileError, EnvironmentError_, ManifestError, Place, TilecError


def failing(error: BaseException) -> Callable[..., None]:
    def raise_it(**_: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "code"),
    [(CompileError("it broke"), 1), (ManifestError("it is wrong"), 2), (EnvironmentError_("it lacks"), 3)],
)
def test_exit_codes(tilec: Callable, monkeypatch: pytest.MonkeyPatch, error: TilecError, code: int) -> None:
    monkeypatch.setattr(main.cli, "main", failing(error))
    outcome = tilec("check")
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err == f"error: {error.what}\n"


def test_an_error_says_what_where_why_and_what_to_do(
    tilec: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ManifestError(
        "no such key", place=Place("a.toml", 3, "kernel[0]"), why="it is new", remedy="remove it"
    )
    monkeypatch.setattr(main.cli, "main", failing(error))
    assert tilec("check").err == (
        "error: no such key\n  where: a.toml:3: kernel[0]\n  why: it is new\n  what to do: remove it\n"
    )


def test_a_defect_is_told_as_one_without_a_traceback(
    tilec: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.cli, "main", failing(KeyError("x")))
    outcome = tilec("check")
    assert outcome.code == 1
    assert "defect of tilec" in outcome.err
    assert "Traceback" not in outcome.err


def test_tilec_debug_shows_the_traceback(tilec: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_DEBUG", "1")
    monkeypatch.setattr(main.cli, "main", failing(KeyError("x")))
    assert "Traceback" in tilec("check").err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "cache"])
def test_output_that_cannot_be_written_is_no_defect(command: str, unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilec.cli.main", command],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3
    what, why, _ = done.stderr.splitlines()
    assert what == "error: standard output cannot be written"
    assert why == "  why: No space left on device"


def test_an_interrupt_is_130(tilec: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main.cli, "main", failing(KeyboardInterrupt()))
    outcome = tilec("check")
    assert (outcome.code, outcome.err) == (130, "interrupted\n")


def test_a_wrong_setting_is_told(tilec: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_DEBUG", "perhaps")
    outcome = tilec("cache")
    assert outcome.code == 2
    assert 'TILEC_DEBUG is "perhaps"' in outcome.err


def test_a_missing_manifest_is_named(tilec: Callable) -> None:
    outcome = tilec("check", "nowhere.toml")
    assert outcome.code == 2
    assert outcome.err.startswith("error: cannot read nowhere.toml\n")


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'from tilec.cli.main import main; main([\"--help\"])' | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
