"""Every CUDA kernel that ships runs on the emulator as the interpreter, or its author's reference, says."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from emulated import Beside

from tilec.build.frontend import elaborate_variant
from tilec.manifest import Variant, load_manifest
from tilec.targets import Target
from tilec.verify.oracle import Author, authors

ROOT = Path(__file__).parents[3]
MANIFESTS = (ROOT / "manifests" / "llm.toml", ROOT / "benchmarks" / "gpu" / "bundle.toml")


def is_emulated(target: Target) -> bool:
    return target.gpu is not None and not target.gpu.is_ptx


def shipped() -> list[tuple[Path, str, Target]]:
    """Manifest, kernel and target of everything that has machine code for a GPU."""
    found = []
    for manifest in MANIFESTS:
        for kernel in load_manifest(manifest).kernels:
            targets = {variant.target.name: variant.target for variant in kernel.variants}
            found += [(manifest, kernel.name, target) for target in targets.values() if is_emulated(target)]
    return found


@cache
def known_authors(manifest: Path) -> dict[str, Author]:
    return authors(manifest)


def variants(manifest: Path, name: str, target: Target) -> list[Variant]:
    (kernel,) = load_manifest(manifest, kernels=[name]).kernels
    return [variant for variant in kernel.variants if variant.target == target]


CASES = shipped()


@pytest.mark.parametrize(
    ("manifest", "name", "target"), CASES, ids=[f"{case[0].stem}-{case[1]}-{case[2].name}" for case in CASES]
)
def test_shipped_kernel(manifest: Path, name: str, target: Target) -> None:
    author = known_authors(manifest).get(name, Author())
    for variant in variants(manifest, name, target):
        kernel, _ = elaborate_variant(variant)
        tiles = frozenset(value for value in variant.config.values() if type(value) is int and value >= 4)
        beside = Beside(kernel, target, author, tiles=tiles)
        tried = 0
        for dims in beside.cases(2):
            tried += 1
            assert beside.run(dims) == [], (variant.title, dims)
        assert tried, variant.title
