"""The pages list every target and every feature, with the shared memory of a block as code knows it."""

from __future__ import annotations

import re
from pathlib import Path

from tilec.backends.hip.chips import CHIPS
from tilec.targets import _FEATURES, _REFUSED, CUDA_TARGETS, parse_target

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, begin: str) -> list[list[str]]:
    """The cells of the table rows whose first cell matches ``begin``."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [line.strip("|").split("|") for line in lines if re.match(rf"\| {begin}", line)]


def names(cell: str) -> list[str]:
    """What a first cell names, with "each with `f` or `a`" written out."""
    listed, _, suffixes = cell.partition(" each with ")
    plain = re.findall(r"`(\w+)`", listed)
    return [name + suffix for name in plain for suffix in ("", *re.findall(r"`(\w)`", suffixes))]


def kib(cell: str) -> int:
    """A cell such as "227 KiB", in bytes."""
    found = re.fullmatch(r" *(\d+) KiB *", cell)
    assert found, cell
    return 1024 * int(found[1])


def test_features_of_processors() -> None:
    told = {
        (level, name)
        for first, second, *_ in rows("cpu.md", r"`(?:x86-64-v\d|aarch64)` \| `")
        for level in re.findall(r"`([\w-]+)`", first)
        for name in re.findall(r"`(\w+)`", second)
    }
    known = {(level, feature.name) for feature in _FEATURES for level in feature.levels}
    assert told == known | {("aarch64", name) for name in _REFUSED}


def test_gpus_of_nvidia() -> None:
    told = {
        name: kib(second)
        for first, second, *_ in rows("cuda.md", "`(?:sm|compute)_")
        for name in names(first)
    }
    assert told == {name: getattr(parse_target(name).gpu, "shared_bytes", 0) for name in CUDA_TARGETS}


def test_gpus_of_amd() -> None:
    told = {name: (int(row[2]), kib(row[3])) for row in rows("hip.md", "`gfx") for name in names(row[0])}
    assert told == {name: (chip.lanes, chip.shared_bytes) for name, chip in CHIPS.items()}
