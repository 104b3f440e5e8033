"""Kernels that ship, with the configs that they have for sm_80, run as code for AMD GPUs on the emulator and
compute what they should: some of them here, all with `make test-emulate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipped import check, shipped, variants

from tilec.errors import CompileError, Kind
from tilec.targets import parse_target

CONFIGS, CHIPS = "sm_80", ("gfx942", "gfx1100")
#: Rows, sums of a scan, an index beside a value; products of both kinds, one behind the other, and from raw
#: words; two launches.
SOME = (
    "softmax_float16", "cumsum", "topk_gating", "linear_int8", "attention_dense_float16",
    "decode_paged_float16",
)  # fmt: skip
ALL = shipped(CONFIGS)


def run(manifest: Path, name: str, chip: str) -> None:
    variant = variants(manifest, name, CONFIGS)[0]
    try:
        check(manifest, variant, 1, parse_target(chip))
    except CompileError as error:
        if error.kind is not Kind.SHARED_MEMORY:
            raise
        pytest.skip(f"its config wants more shared memory than {chip} has")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", SOME)
def test_some(name: str, chip: str) -> None:
    run(next(manifest for manifest, each in ALL if each == name), name, chip)


@pytest.mark.emulate
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("manifest", "name"), ALL, ids=[f"{manifest.stem}-{name}" for manifest, name in ALL])
def test_all(manifest: Path, name: str, chip: str) -> None:
    run(manifest, name, chip)
