"""The kernels that ship for GPUs, on the emulator beside the interpreter or their authors' references."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from emulated import Beside

from tilec.build.elaborated.frontend import elaborate_variant
from tilec.ir.nodes import Kernel
from tilec.manifest import Plan, Variant, load_manifests, of_all_hosts
from tilec.trials.oracle import Author, authors

ROOT = Path(__file__).parents[3]
MANIFESTS = (ROOT / "manifests" / "llm.toml", ROOT / "benchmarks" / "gpu" / "bundle.toml")
#: Those that have the same kernels with other epilogues, or in other types: their variants take minutes.
FURTHER = tuple(ROOT / "manifests" / name for name in ("vision.toml", "blockscaled.toml"))
#: Those for GPUs that are not NVIDIA's.
OTHERS = (ROOT / "manifests" / "llm_everywhere.toml",)


@cache
def plan(manifest: Path) -> Plan:
    """The variants of a manifest, for all its hosts."""
    return of_all_hosts(load_manifests(manifest))


@cache
def known_authors(manifest: Path) -> dict[str, Author]:
    """What the manifest says about checking its kernels."""
    return authors(manifest)


def shipped(target: str, manifests: tuple[Path, ...] = MANIFESTS) -> list[tuple[Path, str]]:
    """Manifest and kernel of everything that has code for ``target``."""
    return [
        (manifest, kernel.name)
        for manifest in manifests
        for kernel in plan(manifest).kernels
        if any(variant.target.name == target for variant in kernel.variants)
    ]


def variants(manifest: Path, name: str, target: str) -> list[Variant]:
    """The variants of a kernel for ``target``."""
    kernel = next(kernel for kernel in plan(manifest).kernels if kernel.name == name)
    return [variant for variant in kernel.variants if variant.target.name == target]


def check(
    manifest: Path,
    variant: Variant,
    count: int,
    made: Callable[[Kernel], Any] | None = None,
) -> None:
    """Runs a variant for ``count`` dims, on the emulator or on what is ``made`` of the kernel."""
    author = known_authors(manifest).get(variant.kernel, Author())
    kernel = elaborate_variant(variant).kernel
    tiles = frozenset(value for value in variant.config.values() if type(value) is int and value >= 4)
    run = None if made is None else made(kernel)
    beside = Beside(kernel, variant.target, author, tiles=tiles, run=run)
    tried = 0
    for dims in beside.cases(count):
        tried += 1
        assert beside.run(dims) == [], (variant.title, dims)
    assert tried, variant.title
