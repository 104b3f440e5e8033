"""Tensor maps and the copies that use them."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.emulate.memory import Memory


@dataclass(frozen=True)
class TensorMap:
    """A tensor map over a memory: extents and box innermost first, strides in bytes without the innermost."""

    memory: Memory
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
