"""The page of the house and the import contract tell the same order of rooms; test modules differ in name."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def contract() -> dict[str, Any]:
    """The contract that every module of tilec is part of."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = tables["tool"]["importlinter"]["contracts"][0]
    return found


def test_the_page_lists_the_rooms_of_the_contract() -> None:
    page = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    cells = [re.split(r"(?<!\\)\|", line)[1] for line in page.splitlines() if line.startswith("| `")]
    rows = [sorted(re.findall(r"`(\w+)`", cell)) for cell in cells]
    assert rows == [sorted(re.split(r" [|:] ", layer)) for layer in contract()["layers"]]


def test_no_module_stands_outside() -> None:
    assert contract()["exhaustive"], "a module that no room has is let in"
    here = {
        path.stem
        for path in (ROOT / "tilec").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms = {room for layer in contract()["layers"] for room in re.split(r" [|:] ", layer)}
    assert here - {"__init__"} == rooms


def test_no_two_test_modules_share_a_name() -> None:
    """pytest imports them by name alone and leaves the second one out."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
