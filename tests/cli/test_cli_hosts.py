"""Commands about a manifest with a list of hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

KERNEL = """\
import tilec
import tilec.language as T


@tilec.jit
def copy(X, block=64):
    N = T.const("N")
    X: T.Tensor[[N], T.float32]
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=block) as b:
        for i in T.Parallel(block):
            if b * block + i < N:
                Y[b * block + i] = X[b * block + i]
    return Y
"""
HOSTS = {
    "x86_64-linux-gnu.2.17": ["x86-64-v2", "sm_80"],
    "aarch64-macos.12": ["aarch64"],
    "x86_64-windows": ["x86-64-v2", "sm_80"],
}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "copy.py").write_text(KERNEL)
    path = tmp_path / "demo.toml"
    path.write_text(
        'edition = 1\n[package]\nname = "demo"\n[targets]\ncpu = ["x86-64-v2", "aarch64"]\ncuda = ["sm_80"]\n'
        f"host = {json.dumps(list(HOSTS))}\n"
        '[[kernel]]\nname = "copy"\nsource = "copy.py:copy"\ndims = { N = ["%4", "dynamic"] }\n'
    )
    return path


def test_check_lists_what_each_host_has(tilec: Callable, manifest: Path) -> None:
    shown = json.loads(tilec("check", manifest, "-j", "1", "--json").out)
    assert {each["host"]: each["targets"]["copy"] for each in shown["hosts"]} == HOSTS
    (kernel,) = shown["kernels"]
    assert list(dict.fromkeys(each["target"] for each in kernel["variants"])) == [
        *("x86-64-v2", "sm_80", "aarch64"),
    ]
    text = tilec("check", manifest, "-j", "1").out
    assert "x86_64-windows         copy    2 x86-64-v2, 2 sm_80" in text
    assert text.endswith("1 kernel, 6 variants, 3 hosts, no errors\n")


def test_check_names_targets_that_a_kernel_is_not_for(tilec: Callable, manifest: Path) -> None:
    more = '[[kernel]]\nname = "less"\nsource = "copy.py:copy"\ntargets = ["cpu"]\ndims = { N = "dynamic" }\n'
    manifest.write_text(manifest.read_text() + more)
    lines = tilec("check", manifest, "-j", "1").out.splitlines()
    assert [line.split()[-1] for line in lines if " less " in line and "-windows" in line] == ["sm_80"]
    assert [line.split()[-1] for line in lines if " less " in line and "-macos" in line] == ["aarch64"]


def test_calls_are_answered_for_targets_of_all_hosts(tilec: Callable, manifest: Path) -> None:
    shapes = manifest.with_name("shapes.json")
    shapes.write_text('{"calls": [{"kernel": "copy", "dims": {"N": 6}}]}')
    answers = json.loads(tilec("check", manifest, "-j", "1", "--shapes", shapes, "--json").out)
    assert [each["target"] for each in answers] == ["x86-64-v2", "sm_80", "aarch64"]


def test_explain_finds_targets_of_any_host(tilec: Callable, manifest: Path) -> None:
    assert tilec("explain", manifest, "copy", "--target", "aarch64").out.startswith("copy on aarch64, N=%4")
    outcome = tilec("explain", manifest, "copy", "--target", "aarch65")
    assert (outcome.code, 'target "aarch65" is not in the manifest' in outcome.err) == (2, True)
