"""PTX instructions by their names."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm.tirx.script import builder as T


@lru_cache(maxsize=256)
def instruction(name: str) -> Any:
    """What makes a call of the instruction of this name: TVM's own lookup narrows its table part by part,
    which takes longer than the call."""
    return T.ptx[name]
