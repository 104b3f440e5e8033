"""`tilec doctor` and `tilec completion`: what is there is said, what is missing comes with its remedy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilec.backends.base import backend_at
from tilec.targets import native_target


def told(outcome: Any) -> dict[tuple[str, str], dict[str, str]]:
    return {(each["section"], each["what"]): each for each in json.loads(outcome.out)["findings"]}


def test_a_machine_that_builds(tilec: Callable, tmp_path: Path) -> None:
    outcome = tilec("doctor", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = told(outcome)
    assert found["run", "CPU code"]["detail"].startswith(native_target().name)
    assert {found["build", what]["state"] for what in ("C compiler", "CPU code", "cache")} == {"ok"}
    assert str(tmp_path / "cache") in found["build", "cache"]["detail"]
    assert {each["state"] for each in found.values()} <= {"ok", "absent"}
    assert all(each["remedy"] for each in found.values() if each["state"] == "absent")


def test_a_machine_that_does_not(tilec: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho no header >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TILEC_CC", str(broken))
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TILEC_NVCC", "no-such-nvcc")
    outcome = tilec("doctor")
    assert outcome.code == 3
    lines = outcome.out.splitlines()
    assert f"TILEC_CC={broken}" in lines
    assert [line.split()[:2] for line in lines if line.startswith("  no")] == [["no", "C"], ["no", "cache"]]
    assert "no header" in outcome.out
    assert "what to do: set TILEC_CACHE_DIR to a folder that can be, or TILEC_CACHE=0" in outcome.out
    assert "set TILEC_NVCC to an nvcc, or unset it to use NVRTC" in outcome.out
    assert lines[-1] == "2 things missing"


def test_devices_of_amd_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"name": "AMD Instinct MI300X", "arch": "gfx942", "driver": "HIP 6.4"}
    monkeypatch.setattr("tilec.backends.hip.driver.hip_devices", lambda: 1)
    monkeypatch.setattr("tilec.portable.devices.hip.HipDevice.facts", lambda self: facts)
    assert backend_at("hip").devices() == ("AMD Instinct MI300X (gfx942), HIP 6.4",)


def test_devices_of_nvidia_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"name": "NVIDIA H200", "major": 9, "minor": 0, "driver": "CUDA 12.9"}
    monkeypatch.setattr("tilec.backends.cuda.driver.cuda_devices", lambda: 1)
    monkeypatch.setattr("tilec.portable.devices.cuda.CudaDevice.facts", lambda self: facts)
    assert backend_at("cuda").devices() == ("NVIDIA H200 (9.0), CUDA 12.9",)


ASK = """
source {script}
COMP_WORDS=(tilec {words}); COMP_CWORD={at}; _tilec_completion tilec; echo "${{COMPREPLY[@]}}"
"""


def test_bash_completes_commands(tilec: Callable, tmp_path: Path) -> None:
    program, script = shutil.which("tilec", path=Path(sys.executable).parent), tmp_path / "script"
    script.write_text(tilec("completion", "bash").out)
    asked = ASK.format(script=script, words="do", at=1)
    env = {**os.environ, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "doctor\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(tilec: Callable, shell: str) -> None:
    assert f"_TILEC_COMPLETE={shell}_complete" in tilec("completion", shell).out
