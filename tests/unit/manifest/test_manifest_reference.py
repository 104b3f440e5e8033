from __future__ import annotations

from pathlib import Path

from tilec.manifest.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "manifest.md"


def test_the_page_is_what_the_models_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"
