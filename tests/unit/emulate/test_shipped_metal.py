"""Kernels that ship, with the configs that they have for sm_80, as Metal source that is compiled and run on
this machine: some of them here, all with `make test-emulate`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from metal_source import TARGET, OnMetal
from shipped import check, shipped, variants

from tilec.errors import CompileError, Kind
from tilec.manifest import Variant

CONFIGS = "sm_80"
#: What configs for sm_80 are cut down to where their tiles are larger than threadgroup memory.
MOST = {"num_stages": 1, "bM": 32, "bN": 32, "bK": 128}
#: Rows, sums of a scan, an index beside a value; products of floats, one behind the other, and of bytes.
SOME = (
    "softmax_float16", "cumsum", "topk_gating", "matmul_bfloat16", "attention_dense_float16", "linear_int8",
)  # fmt: skip
ALL = shipped(CONFIGS)


def fits(manifest: Path, variant: Variant, folder: Path) -> bool:
    """Runs a variant; whether there is threadgroup memory for it."""
    try:
        check(manifest, variant, 1, TARGET, partial(OnMetal, folder=folder))
    except CompileError as error:
        if error.kind is not Kind.SHARED_MEMORY:
            raise
        return False
    return True


def run(manifest: Path, name: str, folder: Path) -> None:
    variant = variants(manifest, name, CONFIGS)[0]
    config = {key: min(value, MOST[key]) if key in MOST else value for key, value in variant.config.items()}
    if not fits(manifest, variant, folder) and not fits(manifest, replace(variant, config=config), folder):
        pytest.skip("even small tiles want more threadgroup memory than there is")


@pytest.mark.parametrize("name", SOME)
def test_some(name: str, tmp_path: Path) -> None:
    run(next(manifest for manifest, each in ALL if each == name), name, tmp_path)


@pytest.mark.emulate
@pytest.mark.parametrize(("manifest", "name"), ALL, ids=[f"{manifest.stem}-{name}" for manifest, name in ALL])
def test_all(manifest: Path, name: str, tmp_path: Path) -> None:
    run(manifest, name, tmp_path)
