"""Every kernel that ships for sm_90a runs on the emulator and computes what it should: one variant of each
here, all of them with `make test-emulate`. Of the same kernel in float16 and bfloat16, in both manifests, one
is fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from breadth import parametrized
from shipped import FURTHER, check, shipped, variants

TARGET = "sm_90a"
EVERY = [*shipped(TARGET), *shipped(TARGET, FURTHER)]


Cases = list[tuple[Path, str]]


def kernels(cases: Cases, fast: Cases) -> pytest.MarkDecorator:
    ids = [f"{manifest.stem}-{name}" for manifest, name in cases]
    return parametrized(("manifest", "name"), cases, fast=fast, ids=ids)


def of_one_half(cases: Cases) -> Cases:
    """Without those that differ from a later one in their manifest, or in float16 for bfloat16, alone."""
    return list({name.replace("bfloat16", "float16"): (manifest, name) for manifest, name in cases}.values())


@kernels(shipped(TARGET), fast=of_one_half(shipped(TARGET)))
def test_kernel(manifest: Path, name: str) -> None:
    check(manifest, variants(manifest, name, TARGET)[0], 2)


@pytest.mark.emulate
@kernels(EVERY, fast=EVERY)
def test_variants(manifest: Path, name: str) -> None:
    for variant in variants(manifest, name, TARGET):
        check(manifest, variant, 4)
