"""Configs that no device has are told apart by what they are short of, not by words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.build.schedules.examine import Refused, examine
from tilec.errors import CompileError, Kind, SourceError, UnsupportedError
from tilec.manifest import load_manifest

MANIFEST = """\
edition = 1

[package]
name = "refusals"

[targets]
cuda = ["{target}"]

[[kernel]]
name = "matmul"
source = "{kernels}/gemm.py:matmul"
dims = {{ M = "dynamic", N = 1024, K = 1024 }}
args = {{ dtype = "float16" }}
config = {config}
"""
KERNELS = Path(__file__).parents[3] / "examples" / "kernels"


def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, config: str) -> str:
    path = tmp_path / "refusals.toml"
    path.write_text(MANIFEST.format(target=target, kernels=KERNELS, config=config))
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    found = examine(load_manifest(path).variants[0])
    assert isinstance(found, Refused)
    return found.kind


@pytest.mark.parametrize(
    ("target", "config", "expected"),
    [
        ("sm_80", "{ bK = 512 }", "shared memory"),
        ("sm_90a", "{ bK = 1024 }", "shared memory"),
        ("sm_80", "{ bM = 512, bN = 512, bK = 16 }", "registers"),
        ("sm_80", "{ bM = -4 }", "kernel source"),
    ],
)
def test_a_refusal_says_what_there_is_too_little_of(tmp_path, monkeypatch, target, config, expected):
    assert kind(tmp_path, monkeypatch, target, config) == expected


def test_a_class_has_a_kind_that_an_error_may_replace():
    assert (SourceError("x").kind, UnsupportedError("x").kind) == (Kind.SOURCE, Kind.INSTRUCTION)
    assert CompileError("x").kind is Kind.OTHER
    assert UnsupportedError("x", kind=Kind.SHARED_MEMORY).kind is Kind.SHARED_MEMORY
