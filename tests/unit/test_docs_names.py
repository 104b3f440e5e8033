"""Files and modules that the pages name are there."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FILE = re.compile(r"`((?:tilec|runtime_c|tests|benchmarks|examples|manifests)/[\w/.-]+\w/?)`")
NAME = re.compile(r"`(tilec(?:\.\w+)+)`")
#: A header of built packages.
BUILT = {"tilec/tilec.h", "tilec/tilec.hpp"}


def mentions(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """What the pages name, each once, with the first page."""
    found: dict[str, str] = {}
    for page in PAGES:
        for name in pattern.findall(page.read_text(encoding="utf-8")):
            found.setdefault(name, page.name)
    return [(page, name) for name, page in sorted(found.items())]


@pytest.mark.parametrize(("page", "name"), mentions(FILE))
def test_a_file_is_there(page: str, name: str) -> None:
    assert name in BUILT or (ROOT / name).exists(), f"{page} names {name}"


@pytest.mark.parametrize(("page", "name"), mentions(NAME))
def test_a_module_or_what_it_holds_is_there(page: str, name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        assert reduce(getattr, parts[length:], module) is not None
        return
    raise AssertionError(f"{page} names {name}")
