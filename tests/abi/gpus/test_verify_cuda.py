"""`verify` on a GPU: right and wrong kernels of a stand-in driver (programs/fake_cuda.c), and no driver."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_samples import scale_spec

from tilec.build.library import build
from tilec.package.write import write_package
from tilec.portable.loader import LaunchError, load
from tilec.targets import native_host

pytestmark = pytest.mark.slow

#: Kernel and what verification says of it.
KERNELS = {
    "scale": "",
    "scale_tail": "y: 1 of",
    "scale_past": "memory around y was written",
    "scale_races": "y differs between two calls with the same inputs",
    "scale_dies": "the kernel failed on the GPU: ",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = scale_spec(native_host(), *sorted(KERNELS))
    return write_package(spec, tmp_path_factory.mktemp("scales")).library


def verify(library: Path, *options: str, driver: Path | None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "FAKE_CUDA": "2 80 12000", "TILEC_CACHE": ""}
    if driver is not None:
        env["LD_LIBRARY_PATH"] = str(driver)
    command = [sys.executable, "-m", "tilec.cli.main", "verify", str(library), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)


def test_a_right_kernel_passes(library: Path, driver: Path) -> None:
    done = verify(library, "--device", "cuda:1", "--kernel", "scale", driver=driver)
    assert done.returncode == 0, done.stderr
    assert "--device cuda:1" not in done.stderr


@pytest.fixture(scope="module")
def defects(library: Path, driver: Path) -> str:
    """What is said of all wrong kernels, in one run."""
    wrong = [option for name, said in KERNELS.items() if said for option in ("--kernel", name)]
    done = verify(library, "--device", "cuda:1", *wrong, driver=driver)
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", [name for name, said in KERNELS.items() if said])
def test_defects_are_found(defects: str, name: str) -> None:
    said = rf"^{name}, variant \d+ on sm_80: {re.escape(KERNELS[name])}.*\n  again: .* --device cuda:1$"
    assert re.search(said, defects, re.MULTILINE), defects


def test_after_a_failure_on_the_gpu_a_new_process_goes_on(library: Path, driver: Path) -> None:
    done = verify(library, "--device", "cuda", "--kernel", "scale_dies", "--kernel", "scale", driver=driver)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert {row[0]: row[-1] for row in rows if row and row[0].startswith("scale")} == {
        "scale": "ok",
        "scale_dies": "FAILED",
    }


@pytest.mark.parametrize(
    ("device", "code", "text"),
    [
        ("cuda:2", 3, "there is no CUDA device 2"),
        ("cpu", 0, "skipped scale on sm_80"),
        ("gpu", 2, "write cpu, cuda, cuda:<number>, hip, hip:<number>, metal or metal:<number>"),
    ],
)
def test_devices_that_are_not_there(library: Path, driver: Path, device: str, code: int, text: str) -> None:
    done = verify(library, "--device", device, "--kernel", "scale", driver=driver)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_a_machine_without_a_driver_says_so(library: Path) -> None:
    done = verify(library, "--device", "cuda", driver=None)
    assert done.returncode == 3
    assert "no CUDA driver" in done.stderr
    assert "Traceback" not in done.stderr


MANIFEST = """
edition = 1

[package]
name = "both_kinds"
version = "1.0.0"

[targets]
cpu = ["x86-64-v2", "x86-64-v3"]
cuda = ["sm_80", "sm_90a", "compute_80"]

[[kernel]]
name = "matmul"
source = "{kernels}/gemm.py:matmul"
args = {{ dtype = "float16" }}
dims = {{ M = "dynamic", N = "%8", K = "%8" }}
config = {{ bM = 64, bN = 64, bK = 64, num_stages = 3, threads = 128 }}
fallback = "none"

[[kernel]]
name = "scale_add"
source = "{kernels}/elementwise.py:scale_add"
dims = {{ n = ["%8", "dynamic"] }}
config = {{ block = 1024 }}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
@pytest.mark.nvrtc
def test_a_library_with_cuda_code_is_whole_on_a_machine_without_a_driver(tmp_path: Path) -> None:
    kernels = Path(__file__).resolve().parents[3] / "examples" / "kernels"
    manifest = tmp_path / "both.toml"
    manifest.write_text(MANIFEST.format(kernels=kernels))
    built = build(manifest, tmp_path / "out").report.library
    done = verify(built, "--json", driver=None)
    outcomes: dict[str, set[str]] = {}
    for case in json.loads(done.stdout)["cases"]:
        outcomes.setdefault(case["target"], set()).add(case["outcome"])
    assert done.returncode == 0, done.stderr
    assert outcomes["x86-64-v2"] == {"passed"}
    assert outcomes["sm_80"] == outcomes["sm_90a"] == outcomes["compute_80"] == {"skipped"}
    library = load(built)
    for call in (library.preload, library.kernels["matmul"].preload):
        with pytest.raises(LaunchError, match="TILEC_ERR_NO_DRIVER"):
            call("cuda:0")
    with pytest.raises(LaunchError, match="TILEC_ERR_NO_DRIVER"):
        library.kernels["matmul"].select("cuda:0", M=1, N=8, K=8)
