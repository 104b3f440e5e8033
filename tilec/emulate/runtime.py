"""What generated source calls beside `tilec.emulate.state.numbers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulate.group import WARP, Group
from tilec.emulate.instructions.registry import from_register
from tilec.emulate.state.memory import At, HostMemory
from tilec.emulate.state.numbers import TYPES, array
from tilec.emulate.translation.expressions import wide

__all__ = [
    "At", "HOST", "NOBODY", "attempt", "columns", "from_register", "moved", "packed", "place", "regrouped",
    "sides", "wide",
]  # fmt: skip


class _Nobody:
    """The mask of no lane."""


NOBODY = _Nobody()
HOST = HostMemory()


def attempt(code: Callable[[], Any]) -> Any:
    """A value that may have no meaning where nothing uses it."""
    try:
        return code()
    except (ZeroDivisionError, OverflowError):
        return None


def place(g: Group, kind: str, axis: int) -> Any:
    """A coordinate of the threads."""
    sizes = g.block.threads
    if kind == "lane":
        return (g.threads % WARP).astype(np.int32)
    if kind == "warp":
        return (g.threads // WARP).astype(np.int32)
    if sizes[axis] == 1:
        return 0
    step = 1
    for size in sizes[:axis]:
        step *= size
    return (g.threads // step % sizes[axis]).astype(np.int32)


def sides(mask: Any, cond: Any) -> tuple[Any, Any]:
    """The lanes where a condition holds and those where it does not; NOBODY for none."""
    if not isinstance(cond, np.ndarray):
        return (mask, NOBODY) if cond else (NOBODY, mask)
    if cond.dtype != np.bool_:
        cond = cond != 0
    taken = cond if mask is None else cond & mask
    left = ~cond if mask is None else mask & ~cond
    if not left.any():
        return mask, NOBODY
    if not taken.any():
        return NOBODY, mask
    return taken, left


def moved(address: Any, offset: int) -> Any:
    """An address some bytes on."""
    if isinstance(address, At):
        return At(address.memory, address.offset + offset)
    return address + offset


def columns(raw: np.ndarray, dtype: str) -> list[np.ndarray]:
    """The elements in rows of bytes, one array each."""
    values = np.ascontiguousarray(raw).view(TYPES[dtype])
    return [np.ascontiguousarray(values[:, lane]) for lane in range(values.shape[1])]


def packed(g: Group, values: list[Any], dtype: str) -> np.ndarray:
    """The bytes of several values, one row a lane."""
    made = np.stack([array(value, dtype, g.count) for value in values], axis=1)
    return np.ascontiguousarray(made).view(np.uint8)


def regrouped(g: Group, values: list[Any], source: str, dtype: str) -> list[np.ndarray]:
    """The same bits as values of another type."""
    return columns(packed(g, values, source), dtype)
