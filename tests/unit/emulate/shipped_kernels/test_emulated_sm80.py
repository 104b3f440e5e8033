"""Every kernel that ships for sm_80 runs on the emulator and computes what it should: one variant of each
here, all of them with `make test-emulate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from shipped import FURTHER, check, shipped, variants

pytestmark = pytest.mark.slow

TARGET = "sm_80"


def kernels(cases: list[tuple[Path, str]]) -> pytest.MarkDecorator:
    ids = [f"{manifest.stem}-{name}" for manifest, name in cases]
    return pytest.mark.parametrize(("manifest", "name"), cases, ids=ids)


@kernels(shipped(TARGET))
def test_kernel(manifest: Path, name: str) -> None:
    check(manifest, variants(manifest, name, TARGET)[0], 2)


@pytest.mark.emulate
@kernels([*shipped(TARGET), *shipped(TARGET, FURTHER)])
def test_variants(manifest: Path, name: str) -> None:
    for variant in variants(manifest, name, TARGET):
        check(manifest, variant, 4)
