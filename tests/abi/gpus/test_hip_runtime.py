"""A library with code for AMD GPUs: without ROCm it says so; with a stand-in for libamdhip64
(programs/fake_hip.c) its code objects load, its launches fit them, and what they compute is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest
from breadth import parametrized
from device_rows import FORKED, PRELUDE, build_rows
from linked import link

from tilec.cli.main import run as run_command
from tilec.package.library.inspect import read_library

HERE = Path(__file__).parents[1]
SOFTMAX = """
def softmax(x, index=0):
    y = np.full_like(x, np.nan)
    library.softmax(OnGpu(x, index), Y=OnGpu(y, index), stream=0)
    return y
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_rows(tmp_path_factory.mktemp("hip"), 'hip = ["gfx942", "gfx1100"]')


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rocm")
    source = HERE / "programs" / "fake_hip.c"
    link("-shared", "-fPIC", source, "-o", folder / "libamdhip64.so.6")
    return folder


def run(library: Path, script: str, rocm: Path | None = None, **environment: str) -> str:
    """What a script prints, in a process that finds the stand-in in ``rocm``."""
    env = {**os.environ, **environment}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE / "hip_machine"), env.get("PYTHONPATH", "")])
    if rocm is not None:
        env["LD_LIBRARY_PATH"] = str(rocm)
    command = [sys.executable, str(HERE / "hip_device.py"), str(library), PRELUDE + SOFTMAX + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@parametrized("device", ["gfx942:sramecc+:xnack-", "gfx1100"], fast=["gfx942:sramecc+:xnack-"])
def test_launches_compute_what_they_should(library: Path, rocm: Path, device: str) -> None:
    script = """
y = softmax(x)
wanted = np.exp(x - x.max(1, keepdims=True))
np.testing.assert_allclose(y, wanted / wanted.sum(1, keepdims=True), rtol=2e-6)
a, b, c = (np.arange(9, dtype=np.float16) for _ in range(3))
library.scale_add(OnGpu(a), OnGpu(b), 0.5, Y=OnGpu(c), stream=0)
np.testing.assert_array_equal(c, a + 0.5 * a)
print(LAUNCHED)
"""
    said = run(library, script, rocm, FAKE_HIP=device)
    assert "softmax" in said
    assert "scale_add" in said


@pytest.mark.skipif(find_library("amdhip64") is not None, reason="this machine has ROCm")
def test_a_machine_without_rocm(library: Path) -> None:
    said = run(library, "failing(softmax, x)")
    assert "TILEC_ERR_NO_DRIVER" in said
    assert "libamdhip64.so.7, .6 and .5 cannot be opened" in said


def test_another_device_is_told_what_there_is(library: Path, rocm: Path) -> None:
    said = run(library, "failing(softmax, x)", rocm, FAKE_HIP="gfx90a")
    assert "TILEC_ERR_NO_ARCH" in said
    assert "no code for device 0, a gfx90a; there is code for gfx942, gfx1100" in said


def test_preload_and_devices(library: Path, rocm: Path) -> None:
    script = """
fake = ctypes.CDLL("libamdhip64.so.6")
library.preload("hip:1")
print("loaded", fake.fake_hip_loaded())
fake.fake_hip_capture(1)
softmax(x, 1)
failing(softmax, x)
fake.fake_hip_capture(2)
failing(softmax, x)
failing(softmax, x, 2)
"""
    said = run(library, script, rocm, FAKE_HIP="gfx942,gfx1100", FAKE_HIP_IDLE="1")
    assert "loaded 2" in said
    assert said.count("TILEC_ERR_NOT_PRELOADED softmax: variant 2 is not loaded") == 2
    assert "there is no AMD GPU 2 among 2" in said


def test_forked_children_are_refused(library: Path, rocm: Path) -> None:
    said = run(
        library, f'DEVICE = "hip:0"\n{FORKED}', rocm, FAKE_HIP="gfx942", FAKE_HIP_IDLE="1"
    ).splitlines()
    refused = [line for line in said if "HIP was in use when this process was forked" in line]
    assert [line.split()[0] for line in refused] == ["TILEC_ERR_DEVICE"] * 2


def test_the_library_tells_of_its_code_objects(library: Path) -> None:
    kernels = read_library(library).metadata["kernels"]
    launches = {
        (kernel["name"], one["target"]): one["launches"][0]["gpu"]
        for kernel in kernels
        for one in kernel["variants"]
    }
    assert {found["lanes"] for (_, target), found in launches.items() if target == "gfx942"} == {64}
    assert {found["lanes"] for (_, target), found in launches.items() if target == "gfx1100"} == {32}
    assert all(found["spills"] == found["stack"] == 0 for found in launches.values())
    assert all(found["registers"] > 0 and found["kernarg_bytes"] % 8 == 0 for found in launches.values())


def test_inspect_shows_registers(
    library: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command(["inspect", str(library)]) == 0
    said = capfd.readouterr().out
    assert len(re.findall(r"\d+ registers, waves of 64, \d+ B shared; ziglang", said)) == 2
    assert len(re.findall(r"\d+ registers, waves of 32, \d+ B shared; ziglang", said)) == 2
