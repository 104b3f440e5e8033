"""docs/language.md lists what the namespace offers: no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import tilec.language as T
from tilec.language.values import scalars
from tilec.language.values.refusal import Refusal

PAGE = Path(__file__).parents[3] / "docs" / "language.md"


def listed() -> set[str]:
    """The names of the table "What is offered"."""
    table = PAGE.read_text().split("## What is offered")[1].split("\n\n")[1]
    cells = [row.split("|")[2] for row in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} - {"range"}


def offered() -> set[str]:
    """The names of T that work, dtypes aside."""
    names = (name for name in dir(T) if name not in scalars.NAMES)
    return {name for name in names if not isinstance(getattr(T, name), Refusal)}


def test_the_page_lists_what_is_offered():
    assert listed() == offered()
