"""What `verify`, `bench` and `tune` do with an AMD GPU: with the stand-in for libamdhip64, whose launches are
emulated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest
from linked import link

from tilec.build.library import build
from tilec.errors import EnvironmentError_
from tilec.package.library.runtime import runtime_folder
from tilec.portable import loader
from tilec.verify import verify_library

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parents[1]
MANIFEST = f"""\
edition = 1

[package]
name = "rows"

[targets]
hip = ["gfx1100"]

[[kernel]]
name = "scale_add"
source = "{ROOT}/examples/kernels/elementwise.py:scale_add"
dims = {{ n = "1..600" }}
fallback = "none"
args = {{ dtype = "float16" }}
"""
DOUBLED = """\
import tilec.language as T

@T.prim_func
def double(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(16):
            B[bx * 16 + i] = A[bx * 16 + i] * 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hip_devices")
    (made / "rows.toml").write_text(MANIFEST)
    (made / "doubled.py").write_text(DOUBLED)
    build(made / "rows.toml", made / "out")
    link("-shared", "-fPIC", HERE / "programs" / "fake_hip.c", "-o", made / "libamdhip64.so.7")
    return made


def script(folder: Path, text: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script on a machine with one RX 7900."""
    paths = [str(HERE), str(HERE / "hip_machine"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LD_LIBRARY_PATH": str(folder)}
    env |= {"FAKE_HIP": "gfx1100", "COLUMNS": "200", **environment}
    line = [sys.executable, "-c", f"import os\n{text}", *command]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300)


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of tilec there."""
    return script(folder, "from tilec.cli.main import main; main()", *command)


def test_a_library_is_verified(folder: Path) -> None:
    done = run(folder, "verify", "out", "--device", "hip", "--json")
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert {(one["device"], one["outcome"]) for one in cases} == {("hip:0", "passed")}
    assert {one["oracle"] for one in cases} == {"interpreter", "guard"}


CALLS = """
import numpy as np
import tilec
from doubled import double
from tilec.bench.run import Request, bench_library
from tilec.cli.main import run as command
from tilec.verify import verify_library
from tilec.backends.base import backend_of
from tilec.targets import parse_target
from tilec.tune.measure.slots import Slot, facts
from hip_device import LAUNCHED, OnGpu

(row,) = bench_library("out", Request(shapes=[("*", {"n": 600})], device="hip:0", seconds=0.0))
assert row.target == "gfx1100" and not row.problem and row.ceilings is None and row.share is None
assert 0 < row.timing.least < 1 and row.timing.calls > 1 and len(LAUNCHED) > row.timing.calls
found = facts(Slot("hip:0"))
assert found["driver"] == "HIP 6.4" and found["multiprocessors"] == 4
targets = map(parse_target, ("gfx1100", "gfx942"))
assert [backend_of(each).runs_on(found, each) for each in targets] == [True, False]
assert command(["bench", "out", "--device", "hip:1"]) == 3
os.environ.pop("FAKE_HIP_IDLE")
a, b = np.arange(128, dtype="float32").reshape(2, 64)
tilec.compile(double, target="auto")(OnGpu(a), OnGpu(b))
assert (b == 2 * a).all()
os.environ["FAKE_HIP_BYTES"] = "20000"
(result,) = verify_library("out", device="hip", dims={"n": 600}, isolated=False)
print(result.outcome, result.detail)
"""


def test_calls_are_timed_by_graphs_kernels_made_in_process_and_refusals_say_why(folder: Path) -> None:
    done = script(folder, CALLS, FAKE_HIP_IDLE="1")
    assert done.returncode == 0, done.stderr
    assert "there is no HIP device 1 to measure on" in done.stderr
    assert "there is no AMD GPU 1 among 1" in done.stderr
    assert re.search(r"failed no room for its \d+ bytes of arrays on hip:0: hipMalloc failed", done.stdout)
    assert "hipErrorOutOfMemory (2): out of memory" in done.stdout


@pytest.mark.skipif(find_library("amdhip64") is not None, reason="this machine has ROCm")
def test_a_machine_without_rocm_says_so(folder: Path) -> None:
    with pytest.raises(EnvironmentError_, match="there is no HIP device 0 to verify on") as error:
        verify_library(folder / "out", device="hip", isolated=False)
    tried = "libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5 cannot be opened"
    assert tried in error.value.why


def test_functions_of_cuda_have_names_in_hip() -> None:
    names = map(loader._hip_name, ("cuMemAlloc_v2", "cuMemcpyDtoH_v2", "cuGraphLaunch", "hipInit"))
    assert [*names] == ["hipMalloc", "hipMemcpyDtoH", "hipGraphLaunch", "hipInit"]


def test_properties_are_where_the_runtime_reads_them() -> None:
    folder = runtime_folder() / "src" / "devices" / "hip"
    text = (folder / "hip_api.h").read_text()
    layouts = re.findall(r'\{"(hipGetDeviceProperties\w*)", (\d+), (\d+)\}', text)
    assert [(name, int(units), int(arch)) for name, units, arch in layouts] == [*loader._HIP_PROPERTIES]
    assert int(re.search(r"HIP_PROPERTIES_ROOM = (\d+)", text)[1]) == loader._HIP_PROPERTIES_ROOM
    names = re.findall(r'"(libamdhip64[^"]*)"', (folder / "hip_driver.c").read_text())
    assert tuple(names[: len(loader._HIP_LIBRARIES)]) == loader._HIP_LIBRARIES
