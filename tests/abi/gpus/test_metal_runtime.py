"""A library with code for Apple GPUs: without Metal it says so; with a stand-in for Metal and the Objective-C
run time (programs/fake_metal.c) its sources become pipelines, and what they compute is right.

Such code is in macOS libraries alone; here one for Linux has it, whose runtime looks for the stand-in."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from device_rows import FORKED, PRELUDE, build_rows
from linked import link

from tilec.backends.metal.backend import MetalBackend
from tilec.cli.main import run as run_command
from tilec.errors import EnvironmentError_
from tilec.package.library.runtime import runtime_folder
from tilec.portable.devices.metal import CORES
from tilec.verify import verify_library

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the stand-in is for x86-64")
HERE = Path(__file__).parents[1]
RUNTIME = """\
#define METAL_OBJC "libfakemetal.so"
#define METAL_FRAMEWORK "libfakemetal.so"
#include "devices/metal/metal.c"
"""
SOFTMAX = """
def softmax(x, stream=0, offset=0):
    y = np.full_like(x, np.nan)
    library.softmax(OnGpu(x, offset), Y=OnGpu(y), stream=stream)
    wanted = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, wanted / wanted.sum(1, keepdims=True), rtol=2e-6)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetalBackend, "runtime", RUNTIME)
        patch.setattr(MetalBackend, "fits", lambda *_: True)
        return build_rows(tmp_path_factory.mktemp("metal"), 'metal = ["metal3"]')


@pytest.fixture(scope="module")
def metal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("framework")
    source, library = HERE / "programs" / "fake_metal.c", folder / "libfakemetal.so"
    link("-shared", "-fPIC", source, "-o", library)
    return folder


def run(library: Path, script: str, metal: Path, **environment: str) -> str:
    """What a script prints, in a process that finds the stand-in in ``metal``."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(metal), **environment}
    command = [sys.executable, str(HERE / "metal_device.py"), str(library), PRELUDE + SOFTMAX + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_launches_compute_what_they_should(library: Path, metal: Path) -> None:
    script = """
softmax(x)
print(events())
a, b, c = (np.arange(9, dtype=np.float16) for _ in range(3))
library.scale_add(OnGpu(a), OnGpu(b), 0.5, Y=OnGpu(c), stream=0)
np.testing.assert_array_equal(c, a + 0.5 * a)
"""
    assert run(library, script, metal) == "compile buffer encoder run end commit wait\n"


def test_queues_command_buffers_and_encoders(library: Path, metal: Path) -> None:
    script = """
library.preload("metal:0")
print(events())
for kind in (b"queue", b"commands", b"encoder"):
    softmax(x, FAKE.fake_metal_object(kind))
    print(events())
"""
    said = run(library, script, metal).splitlines()
    assert said == ["compile compile", "buffer encoder run end commit", "encoder run end", "run"]


def test_offsets(library: Path, metal: Path) -> None:
    script = """
softmax(x, 0, 4096)
failing(softmax, x, 0, 8)
shared = np.zeros((4, 64), np.float32)
whole = OnGpu(shared)
failing(lambda: library.softmax(whole, Y=whole, stream=0))
"""
    said = run(library, script, metal)
    assert "X is at 0x8; on Metal tensors start at multiples of 16 bytes" in said
    assert "Y is written and shares memory with X" in said


def test_other_devices_are_told_what_there_is(library: Path, metal: Path) -> None:
    said = run(library, "failing(softmax, x)", metal, FAKE_METAL="Intel Iris")
    assert "no code for device 0, Intel Iris; there is code for metal3" in said
    assert "the system has no GPU for Metal" in run(library, "failing(softmax, x)", metal, FAKE_METAL="")
    assert "there is no Apple GPU 1 among 1" in run(library, 'failing(library.preload, "metal:1")', metal)


def test_pipelines_of_other_lanes_are_refused_each_time(library: Path, metal: Path) -> None:
    said = run(library, "failing(softmax, x)\nfailing(softmax, x)", metal, FAKE_METAL_LANES="16")
    assert said.count("its pipeline has 16 lanes and up to 1024 threads, the code 32 and") == 2


def test_forked_children_are_refused(library: Path, metal: Path) -> None:
    said = run(library, f'DEVICE = "metal:0"\n{FORKED}', metal).splitlines()
    refused = [line for line in said if "Metal was in use when this process was forked" in line]
    assert [line.split()[0] for line in refused] == ["TILEC_ERR_DEVICE"] * 2


def test_a_machine_without_metal(library: Path, tmp_path: Path) -> None:
    script = f"""
import ctypes, numpy as np
from tilec.portable.loader import LaunchError, load
library = load({str(library)!r})
try: library.preload("metal:0")
except LaunchError as error: print(error.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.stdout == "TILEC_ERR_NO_DRIVER\n", done.stderr


def test_inspect_shows_threadgroup_memory(
    library: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command(["inspect", str(library)]) == 0
    assert capfd.readouterr().out.count("0 B shared, registers as the driver finds; Metal, at run time") == 2


DEVICE = """
from tilec.backends.base import backend_at
from tilec.portable import loader
from tilec.portable.devices import open_device
from tilec.bench.run import Request, bench_library
from tilec.verify import verify_library

path = sys.argv[1]
"""


def on_device(library: Path, script: str, metal: Path, **environment: str) -> str:
    """What a script prints where `verify` and `bench` find the stand-in, too."""
    found = 'loader._METAL_LIBRARIES = ("libfakemetal.so",) * 2\n'
    return run(library, DEVICE + found + script, metal, **environment)


def test_a_library_is_verified_and_measured(library: Path, metal: Path) -> None:
    script = """
results = verify_library(path, device="metal", kernels=("softmax",), isolated=False)
assert {(one.device, one.outcome) for one in results} == {("metal:0", "passed")}, results
assert {one.oracle for one in results} == {"interpreter", "guard"}
events()
shapes = [("softmax", {"M": 4, "N": 64, "ldx": 64})]
(row,) = bench_library(path, Request(shapes=shapes, device="metal", seconds=0.0))
assert row.target == "metal3" and 0 < row.timing.least < 1 and not row.problem, row
print(events()[-18:])
"""
    assert on_device(library, script, metal) == "buffer commit wait\n"


def test_a_device_says_what_is_wrong(library: Path, metal: Path) -> None:
    script = """
device = open_device("metal")
print(device.facts(), backend_at("metal").devices())
failing(device.memory, 1 << 21)
failing(open_device("metal:1").memory, 1)
failing(device.shared_memory, 1)
os.environ["FAKE_METAL_FAILS"] = "1"
failing(device.synchronize)
"""
    said = on_device(library, script, metal)
    assert "'name': 'Apple M1', 'driver': None, 'arch': 'metal3'" in said
    assert "('Apple M1',)" in said
    assert "Metal makes no buffer of 2097152 bytes" in said
    assert "there is no Apple GPU 1 among 1" in said
    assert "kernels that read at addresses do not run on Apple GPUs" in said
    assert "running on the GPU failed: it is no source" in said


def test_there_is_no_metal_here(library: Path) -> None:
    with pytest.raises(EnvironmentError_, match="there is no Metal device 0 to verify on") as error:
        verify_library(library, device="metal", isolated=False)
    assert "no Metal: " in error.value.why


def test_cores_are_those_of_the_runtime() -> None:
    text = (runtime_folder() / "src" / "devices" / "metal" / "metal.h").read_text()
    assert int(re.search(r"METAL_CORES = (\d+)", text)[1]) == CORES
