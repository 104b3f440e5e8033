"""Kernels of a manifest that ask for multiprocessors: every door fills the number in, no caller gives it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import asking
import numpy as np
import pytest
import tvm_ffi
from c_programs import compile_program

from tilec.build import build
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.num_sms import NUM_SMS
from tilec.language.frontend.elaborate import elaborate
from tilec.package.write import BuildReport
from tilec.portable.loader import load
from tilec.targets import native_host, native_target, parse_target
from tilec.trials.facts import facts_of
from tilec.trials.work import work_of
from tilec.verify import verify_library

MANIFEST = """
edition = 1
[package]
name = "asking"
[targets]
cpu = ["{level}"]
[[kernel]]
name = "count"
source = "{source}:count"
[[kernel]]
name = "fixed"
source = "{source}:fixed"
dims = {{ N = ["64", "dynamic"] }}
[[kernel.override]]
dims = {{ N = 64 }}
config = {{ blocks = 2 }}
[[kernel]]
name = "total"
source = "{source}:total"
dims = {{ N = "dynamic" }}
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    folder = tmp_path_factory.mktemp("asking")
    text = MANIFEST.format(level=native_target().name, source=inspect.getsourcefile(asking))
    (folder / "asking.toml").write_text(text)
    return build(folder / "asking.toml", folder / "out", jobs=2).report


def test_typed_door(report: BuildReport, tmp_path: Path) -> None:
    made = compile_program(report, report.library, "asking.c", ("-std=c11",), tmp_path, native_host())
    env = {**os.environ, "TILEC_NUM_THREADS": "8"}
    done = subprocess.run([made], capture_output=True, text=True, check=False, env=env)
    assert (done.stdout, done.returncode) == ("ok\n", 0)


SCRIPT = """
import sys
import numpy as np
from tilec.portable.loader import load
lib, seen = load(sys.argv[1]), np.zeros(1, np.int32)
lib.count(seen)
assert seen == 7, seen
for n in (0, 1, 64, 1000):
    x, y, found = np.arange(n, dtype=np.int32), np.zeros(n, np.int32), np.zeros(1, np.float32)
    lib.total(x.astype(np.float32), found)
    assert found == x.sum(), (n, found)
    lib.fixed(x, y)
    assert (y == x + 1).all(), n
"""


def test_loader(report: BuildReport) -> None:
    env = {**os.environ, "TILEC_NUM_THREADS": "7"}
    command = [sys.executable, "-c", SCRIPT, str(report.library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr


def test_tvm_ffi(report: BuildReport) -> None:
    module, found = tvm_ffi.load_module(str(report.library)), np.zeros(1, np.float32)
    module.asking_total(np.arange(1000, dtype=np.float32), found)
    assert found == 499500


def test_metadata_says_which_variants_take_it(report: BuildReport) -> None:
    kernels = {name: kernel.metadata for name, kernel in load(report.library).kernels.items()}
    assert [dim["name"] for dim in kernels["total"]["dims"]] == ["N"]
    taken = {tuple(one["guards"]): one.get("takes_num_sms", False) for one in kernels["fixed"]["variants"]}
    assert taken == {("N",): False, (): True}
    assert kernels["total"]["variants"][0]["launches"][0]["grid"] == [NUM_SMS]


def test_verify(report: BuildReport) -> None:
    results = verify_library(report.library, kernels=("fixed", "total"), isolated=False)
    assert {one.kernel for one in results} == {"fixed", "total"}
    assert all(one.passed for one in results)


@pytest.mark.slow
def test_verify_lets_other_numbers_of_parts_round_otherwise(
    report: BuildReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_NUM_THREADS", "7")
    (result,) = verify_library(report.library, kernels=("total",), dims={"N": 5000})
    assert result.passed, result.detail


@pytest.mark.parametrize("multiprocessors", [1, 5])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_emulator(target: str, multiprocessors: int) -> None:
    kernel = elaborate(asking.total, name="total", dims={"N": Guard()}, args={}, config={})
    found = np.zeros(1, np.float32)
    emulated = EmulatedKernel(kernel, parse_target(target), multiprocessors=multiprocessors)
    emulated([np.arange(300, dtype=np.float32), found], {"N": 300})
    assert found == 44850
    assert emulated.blocks({"N": 300}) == multiprocessors + 1


def test_bench_counts_its_work() -> None:
    kernel = elaborate(asking.fixed, name="fixed", dims={"N": Guard()}, args={}, config={})
    facts = facts_of(kernel, "sm_80")
    assert facts.dims == ("N",)
    assert work_of(facts, facts.variants[0].ir_text, {"N": 320}, {}).bytes == 2 * 4 * 320
