"""Kernels that ship for AMD GPUs run on the emulator and compute what they should: some of them here, all
with `make test-emulate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from breadth import diagonal, parametrized
from shipped import OTHERS, check, shipped, variants

CHIPS = ("gfx942", "gfx1100")
#: Those whose instructions are deeper, or of more types.
FURTHER = ("gfx950", "gfx1201")
#: Rows, sums of a scan, an index beside a value; products of both kinds, one behind the other, and from raw
#: words; two launches.
SOME = (
    "softmax_float16", "cumsum", "topk_gating", "linear_int8", "attention_dense_float16",
    "decode_paged_float16",
)  # fmt: skip
ALL = shipped(CHIPS[0], OTHERS)


def run(manifest: Path, name: str, chip: str) -> None:
    check(manifest, variants(manifest, name, chip)[0], 1)


@parametrized(("name", "chip"), [(name, chip) for name in SOME for chip in CHIPS], fast=diagonal(SOME, CHIPS))
def test_some(name: str, chip: str) -> None:
    run(next(manifest for manifest, each in ALL if each == name), name, chip)


def test_sums_of_deep_instructions_are_operands() -> None:
    run(OTHERS[0], "attention_dense_float16", "gfx950")


@pytest.mark.emulate
@pytest.mark.parametrize("chip", [*CHIPS, *FURTHER])
@pytest.mark.parametrize(("manifest", "name"), ALL, ids=[f"{manifest.stem}-{name}" for manifest, name in ALL])
def test_all(manifest: Path, name: str, chip: str) -> None:
    run(manifest, name, chip)
