"""Variants of one build that come to the same: GPUs' code is the same for every host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tilec.build.records import spec_text
from tilec.manifest import Variant


def alike(variants: Iterable[tuple[int, Variant]]) -> dict[int, list[int]]:
    """The numbers of variants that differ in more than their host and their place in the manifest, each with
    those of the later ones that do not."""
    first: dict[tuple[str, Path], int] = {}
    found: dict[int, list[int]] = {}
    for number, variant in variants:
        one = first.setdefault((spec_text(variant), variant.base), number)
        if one == number:
            found[one] = []
        else:
            found[one].append(number)
    return found
