"""Dims as people read them, in commands and in what the runner of tuning reports."""

from __future__ import annotations

from collections.abc import Mapping


def dims_text(dims: Mapping[str, object]) -> str:
    """Dims with their values or guards, for people: `M=1..64 N=4096`."""
    return " ".join(f"{name}={value}" for name, value in dims.items())
