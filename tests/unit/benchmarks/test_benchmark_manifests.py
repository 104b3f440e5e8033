"""The manifests of benchmarks can be read: hardly any run of the tests builds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.manifest import load_manifest

FOLDER = Path(__file__).parents[3] / "benchmarks"
TEMPLATE = "KIND = "  # what fills it in writes a family of targets there


def _is_manifest(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return "[package]" in text and TEMPLATE not in text


MANIFESTS = [path for path in FOLDER.rglob("*.toml") if _is_manifest(path)]


def test_there_are_manifests() -> None:
    assert FOLDER / "gpu" / "costs" / "schedules.toml" in MANIFESTS


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_of_a_benchmark_has_variants(manifest: Path) -> None:
    assert load_manifest(manifest).variants
