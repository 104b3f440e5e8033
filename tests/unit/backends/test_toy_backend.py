"""A new family of targets: one object and its C file, nothing else of tilec changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_backend import OnToy, ToyBackend

import tilec
from tilec.build.library import build
from tilec.build.stages import stage_names, stage_text
from tilec.errors import ManifestError
from tilec.manifest import load_manifest
from tilec.package.reasons import reasons
from tilec.portable.loader import LaunchError
from tilec.targets import CPU_LEVELS, native_host, parse_target

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
    with ToyBackend() as device:
        yield device, build(folder / "toys.toml", folder / "out", jobs=1), folder


def arguments(rows: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((rows, 40), (40, 24)))
    return a, b, np.zeros((rows, 24), "float32")


@pytest.mark.parametrize("rows", [3, 16, 50])
def test_a_family_of_its_own_is_dispatched_and_runs(made, rows) -> None:
    device, result, _ = made
    kernel = tilec.load(result.report.out_dir).kernels["matmul"]
    a, b, c = arguments(rows)
    before = len(device.ran)
    kernel(OnToy(a), OnToy(b), OnToy(c))
    assert np.allclose(c, a @ b, atol=1e-4)
    assert len(device.ran) == before + 1
    assert "T.copy" not in device.ran[-1]  # a pass has run
    a, b, c = arguments(rows)
    kernel(a, b, c)
    assert np.allclose(c, a @ b, atol=1e-4)
    assert len(device.ran) == before + 1  # the CPU's code


def test_the_runtime_speaks_of_the_family(made) -> None:
    _, result, _ = made
    kernel = tilec.load(result.report.out_dir).kernels["matmul"]
    told = kernel.explain(M=3, N=24, K=40)
    assert "(toy): rejected: it is for a toy" in told
    assert "(toy): rejected: it is for a toy" in "\n".join(
        map(str, reasons(kernel.metadata, LEVEL, {"M": 3, "N": 24, "K": 40}))
    )
    a, b, c = (array.view("uint8") for array in arguments(3))
    shifted = np.frombuffer(bytearray(a.nbytes + 4), "uint8")[4:].view("float32").reshape(3, 40)
    with pytest.raises(LaunchError, match=r"A is at .*; on toys tensors start at multiples of 8 bytes"):
        kernel(OnToy(shifted), OnToy(b.view("float32")), OnToy(c.view("float32")))


def test_stages_and_manifests_know_the_family(made, tmp_path) -> None:
    _, _, folder = made
    plan = load_manifest(folder / "toys.toml", targets=["toy"])
    assert [variant.target.name for variant in plan.variants] == ["toy", "toy"]
    assert {variant.config["bM"] for variant in plan.variants} == {8}
    assert stage_names(plan.variants[0].target) == ("tile", "expand_copies", "source")
    assert stage_text(plan.variants[0], "source") == stage_text(plan.variants[0], "expand_copies")
    (tmp_path / "wrong.toml").write_text(MANIFEST.replace('toy = ["toy"]', f'toy = ["{LEVEL}"]'))
    with pytest.raises(ManifestError, match="is no toy target"):
        load_manifest(tmp_path / "wrong.toml")
