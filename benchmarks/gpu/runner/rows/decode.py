"""Decode attention over a cache."""

from __future__ import annotations

from rows.row import Row


def rows() -> list[Row]:
    """None yet: no kernel of the bundle decodes."""
    return []
