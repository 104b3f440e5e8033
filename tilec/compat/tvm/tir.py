"""``tilec.tvm.tir``: `tilec.tvm.tirx` under its older name."""

from __future__ import annotations

from typing import Any

from tilec.packages import find_aliases

from . import tirx
from .tirx import const, convert

find_aliases(__name__)

__all__ = ["const", "convert"]


def __getattr__(name: str) -> Any:
    return getattr(tirx, name)
