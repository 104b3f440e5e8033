"""``tilec.language.dtypes``: every dtype by its name, and ``dtype`` itself."""

from __future__ import annotations

from typing import Any

from tilec.language.scalars import NAMES, dtype

__all__ = ["dtype", *NAMES]


def __getattr__(name: str) -> Any:
    if name in NAMES:
        return NAMES[name]
    raise AttributeError(f"there is no dtype {name!r}")
