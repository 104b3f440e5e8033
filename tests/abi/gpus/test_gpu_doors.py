"""The folder of `benchmarks/gpu/doors.py` on this machine's CPU, and what its runner says of faults."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from example_modules import importable

pytest.importorskip("torch")

GPU = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu"

GROUP = """
import os
from checks import LeftOut, agree, check, refused
import torch

@check("right")
def _(env):
    agree(torch.ones(3), torch.ones(3))
    return "a word"

@check("wrong")
def _(env):
    agree(torch.ones(3), torch.full((3,), 1.001))

@check("another type")
def _(env):
    agree(torch.ones(3), torch.ones(3).double())

@check("taken")
def _(env):
    refused("word", lambda: 1)

@check("missing")
def _(env):
    raise LeftOut("no such thing")

@check("of GPUs", cuda=True)
def _(env):
    raise AssertionError

@check("dead")
def _(env):
    os._exit(3)
"""

#: checks.py without torch and without checks.
STUB = """
CHECKS = []
class Env:
    def __init__(self, device): pass
class LeftOut(Exception): pass
def error_text(error): return str(error)
"""


def run(folder: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and records by check, of a run on the CPU."""
    found = folder / "found.json"
    command = [sys.executable, str(folder / "run.py"), "--device", "cpu", "--json", str(found), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    records = json.loads(found.read_text())["checks"]
    assert len(done.stdout.splitlines()) == len(records) + 1, done.stdout + done.stderr
    return done.returncode, {f"{each['group']}: {each['check']}": each for each in records}


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    for name in ("run.py", "checks.py"):
        shutil.copy(GPU / "doors_runner" / name, tmp_path)
    (tmp_path / "calls.py").write_text(GROUP)
    code, found = run(tmp_path, "--only", "calls")
    states = {name: each["state"] for name, each in found.items()}
    assert code == 1
    assert states == {
        "calls: right": "ok",
        "calls: wrong": "FAILED",
        "calls: another type": "FAILED",
        "calls: taken": "FAILED",
        "calls: missing": "left out",
        "calls: of GPUs": "left out",
        "calls: came to its end": "FAILED",
    }
    assert found["calls: right"]["detail"] == "a word"
    assert "relative error is 0.000999 (calls.py:" in found["calls: wrong"]["detail"]
    assert found["calls: came to its end"]["detail"].startswith("exit code 3")


def test_a_group_that_hangs_costs_itself(tmp_path: Path) -> None:
    shutil.copy(GPU / "doors_runner" / "run.py", tmp_path)
    version = "version = type('', (), {'cuda': None})"
    for name, text in (("torch", f"__version__ = '0'\n{version}"), ("checks", STUB), ("calls", "")):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "streams.py").write_text("import time\ntime.sleep(60)\n")
    code, found = run(tmp_path, "--only", "streams", "--only", "calls", "--seconds", "3")
    assert (code, [*found]) == (1, ["streams: came to its end"])
    detail = found["streams: came to its end"]["detail"]
    assert detail.startswith("it took too long: ")
    assert 'streams.py", line 2' in detail


@pytest.mark.slow
def test_every_door_is_right_on_this_cpu(tmp_path: Path) -> None:
    with importable(GPU, ["doors"]):
        importlib.import_module("doors").write_folder(tmp_path / "doors", ["x86-64-v3"])
    code, found = run(tmp_path / "doors", "--seconds", "900")
    assert (code, [each for each in found.values() if each["state"] == "FAILED"]) == (0, [])
    assert {name.partition(":")[0] for name in found} >= {"calls", "native", "programs", "hub", "compiled"}
