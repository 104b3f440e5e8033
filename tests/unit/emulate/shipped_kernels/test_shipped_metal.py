"""Kernels that ship for Apple GPUs, as Metal source that is compiled and run on this machine: some of them
here, all with `make test-emulate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from metal_source import TARGET, OnMetal
from shipped import OTHERS, check, shipped, variants

#: Rows, sums of a scan, an index beside a value; products of floats, one behind the other, and of bytes.
SOME = (
    "softmax_float16", "cumsum", "topk_gating", "matmul_bfloat16", "attention_dense_float16", "linear_int8",
)  # fmt: skip
ALL = shipped(TARGET.name, OTHERS)


def run(manifest: Path, name: str, folder: Path) -> None:
    check(manifest, variants(manifest, name, TARGET.name)[0], 1, partial(OnMetal, folder=folder))


@pytest.mark.parametrize("name", SOME)
def test_some(name: str, tmp_path: Path) -> None:
    run(next(manifest for manifest, each in ALL if each == name), name, tmp_path)


@pytest.mark.emulate
@pytest.mark.parametrize(("manifest", "name"), ALL, ids=[f"{manifest.stem}-{name}" for manifest, name in ALL])
def test_all(manifest: Path, name: str, tmp_path: Path) -> None:
    run(manifest, name, tmp_path)
