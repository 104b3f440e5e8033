"""``tilec.tvm.tir``: `tilec.tvm.tirx` under its older name."""

from __future__ import annotations

from typing import Any

from tilec.tvm import tirx
from tilec.tvm.tirx import const, convert

__all__ = ["const", "convert"]


def __getattr__(name: str) -> Any:
    return getattr(tirx, name)
