"""A new family of targets: one object and its C file, nothing else of tilec changed."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from breadth import parametrized
from toy_backend import ToyBackend
from toy_device import NUMBER, RAN

import tilec
import tilec.language as T
from tilec.bench.run import Request, bench_library
from tilec.build.library import build
from tilec.build.written.stages import stage_names, stage_text
from tilec.errors import EnvironmentError_, InputError, ManifestError
from tilec.manifest import load_manifest
from tilec.package.dispatch.reasons import reasons
from tilec.portable.loader import LaunchError
from tilec.targets import CPU_LEVELS, native_host, parse_target
from tilec.tune import Manner, Selection, tune
from tilec.verify import verify_library

ROOT = Path(__file__).resolve().parents[3]
LEVEL = next(name for name in CPU_LEVELS if parse_target(name).arch == native_host().arch)
MANIFEST = f"""\
edition = 1

[package]
name = "toys"

[targets]
cpu = ["{LEVEL}"]
toy = ["toy"]

[[kernel]]
name = "matmul"
source = "{ROOT}/examples/kernels/gemm.py:matmul"
dims = {{ M = ["1..16", "dynamic"], N = 24, K = 40 }}

[[kernel.override]]
targets = ["toy"]
config = {{ bM = 8 }}
"""


def test_without_the_family_its_key_is_unknown(tmp_path) -> None:
    (tmp_path / "toys.toml").write_text(MANIFEST)
    with pytest.raises(ManifestError, match='unknown key "toy"'):
        load_manifest(tmp_path / "toys.toml")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    (folder / "toys.toml").write_text(MANIFEST)
    with ToyBackend():
        yield build(folder / "toys.toml", folder / "out", jobs=1), folder


class OnToy:
    """An array that says of itself that it lies on the toy."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self):
        return (NUMBER, 0)

    def __dlpack__(self):
        capsule, get = self.array.__dlpack__(), ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_int32.from_address(get(capsule, b"dltensor") + 8).value = NUMBER
        return capsule


def arguments(rows: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((rows, 40), (40, 24)))
    return a, b, np.zeros((rows, 24), "float32")


@pytest.mark.parametrize("rows", [3, 16, 50])
def test_a_family_of_its_own_is_dispatched_and_runs(made, rows) -> None:
    result, _ = made
    kernel = tilec.load(result.report.out_dir).kernels["matmul"]
    a, b, c = arguments(rows)
    before = len(RAN)
    kernel(OnToy(a), OnToy(b), OnToy(c))
    assert np.allclose(c, a @ b, atol=1e-4)
    assert len(RAN) == before + 1
    assert "T.copy" not in RAN[-1]  # a pass has run
    a, b, c = arguments(rows)
    kernel(a, b, c)
    assert np.allclose(c, a @ b, atol=1e-4)
    assert len(RAN) == before + 1  # the CPU's code


def test_the_runtime_speaks_of_the_family(made) -> None:
    result, _ = made
    kernel = tilec.load(result.report.out_dir).kernels["matmul"]
    told = kernel.explain(M=3, N=24, K=40)
    assert "(toy): rejected: it is for a toy" in told
    assert "(toy): rejected: it is for a toy" in "\n".join(
        map(str, reasons(kernel.metadata, LEVEL, {"M": 3, "N": 24, "K": 40}, 1))
    )
    a, b, c = (array.view("uint8") for array in arguments(3))
    shifted = np.frombuffer(bytearray(a.nbytes + 4), "uint8")[4:].view("float32").reshape(3, 40)
    with pytest.raises(LaunchError, match=r"A is at .*; on toys tensors start at multiples of 8 bytes"):
        kernel(OnToy(shifted), OnToy(b.view("float32")), OnToy(c.view("float32")))


def test_stages_and_manifests_know_the_family(made, tmp_path) -> None:
    _, folder = made
    plan = load_manifest(folder / "toys.toml", targets=["toy"])
    assert [variant.target.name for variant in plan.variants] == ["toy", "toy"]
    assert {variant.config["bM"] for variant in plan.variants} == {8}
    assert stage_names(plan.variants[0].target) == ("tile", "expand_copies", "source")
    assert stage_text(plan.variants[0], "source") == stage_text(plan.variants[0], "expand_copies")
    (tmp_path / "wrong.toml").write_text(MANIFEST.replace('toy = ["toy"]', f'toy = ["{LEVEL}"]'))
    with pytest.raises(ManifestError, match="is no toy target"):
        load_manifest(tmp_path / "wrong.toml")


@pytest.fixture
def elsewhere(monkeypatch) -> None:
    """Other processes find the family, too."""
    folders = [str(ROOT / "tests" / "support" / "machines"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))


def test_the_loader_names_its_devices(made) -> None:
    library = tilec.load(made[0].report.out_dir)
    library.preload("toy")
    assert library.matmul.select("toy:0", M=3, N=24, K=40).target == "toy"
    with pytest.raises(LaunchError, match="there is one toy, not number 1"):
        library.matmul.select("toy:1", M=3, N=24, K=40)
    every = r"write cpu, cuda, cuda:<number>, hip, hip:<number>, metal, metal:<number>, toy or toy:<number>"
    with pytest.raises(ValueError, match=every):
        library.matmul.select("toys", M=3, N=24, K=40)
    devices = {one["target"]: one.get("device") for one in library.matmul.metadata["variants"]}
    assert devices == {LEVEL: None, "toy": "toy"}


@pytest.mark.usefixtures("elsewhere")
@parametrized("isolated", [False, True], fast=[False])
def test_variants_are_verified_on_it(made, isolated) -> None:
    library = made[0].report.library
    results = verify_library(library, device="toy", variant=_toy_variant(library), isolated=isolated)
    assert {(one.target, one.device, one.outcome) for one in results} == {("toy", "toy:0", "passed")}
    assert "--device toy:0" in results[0].command(library)


def test_devices_that_are_not_there_are_told(made) -> None:
    library = made[0].report.library
    with pytest.raises(EnvironmentError_, match="there is no toys device 1 to verify on"):
        verify_library(library, device="toy:1", isolated=False)
    with pytest.raises(InputError, match="the variants chosen have no CUDA code") as caught:
        verify_library(library, device="cuda")
    assert caught.value.remedy.startswith("check on the CPU, without --device and --emulate, or add CUDA")


def test_calls_are_measured_on_it(made) -> None:
    shapes = [("*", {"M": 3, "N": 24, "K": 40})]
    request = Request(shapes=shapes, device="toy:0", seconds=0.0)
    before = len(RAN)
    (row,) = bench_library(made[0].report.library, request)
    assert (row.target, row.problem, row.ceilings.device) == ("toy", "", "toy")
    assert row.timing.median > 0
    assert row.limit[0] == "memory" or row.share > 0
    assert len(RAN) > before


FEW = """K = 40 }
fallback = "none"
"""
TUNED = """\

[kernel.tune]
bM = [8, 16]
"""


@pytest.mark.usefixtures("made", "elsewhere")
def test_configs_are_tuned_on_it(tmp_path) -> None:
    manifest = MANIFEST.replace(', "dynamic"]', "]").replace("K = 40 }", FEW) + TUNED
    (tmp_path / "toys.toml").write_text(manifest)
    outcome = tune(tmp_path / "toys.toml", Selection(devices=("toy:0",)), Manner("exhaustive"), jobs=1)
    (result,) = outcome.results
    assert {row.outcome for row in result.rows} == {"ok"}
    assert len(result.rows) == 2
    assert outcome.entries[0].device == "toy"


def test_kernels_in_process_run_on_it(made) -> None:
    @T.prim_func
    def double(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(4):
                B[bx * 4 + i] = A[bx * 4 + i] * 2

    kernel, (a, b) = tilec.compile(double, target="toy"), np.arange(32, dtype="float32").reshape(2, 16)
    kernel(OnToy(a), OnToy(b))
    assert (b == 2 * a).all()
    assert kernel.get_kernel_source() in RAN[-1]
    assert kernel.get_profiler().device == "toy"


def _toy_variant(library) -> int:
    return next(one.id for one in tilec.load(library).matmul.variants if one.target == "toy")
