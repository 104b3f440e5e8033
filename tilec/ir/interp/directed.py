"""Arithmetic of float32 that rounds in a chosen direction: "rn", "rz", "ru" or "rd" as IEEE 754 has them.

A result is computed in float64, next to a number whose sign is that of the exact result minus the float64
one; from these the float32 on the wanted side follows. Sums give that number by T. Dekker's two-sum; products
of two float32 are exact in float64; quotients and roots are checked by multiplying back, which is exact too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.ir.interp.values import wide

MODES = ("rn", "rz", "ru", "rd")


def add(x: Any, y: Any, mode: str) -> Any:
    """x + y."""
    return _toward(*_two_sum(wide(x), wide(y)), mode)


def sub(x: Any, y: Any, mode: str) -> Any:
    """x - y."""
    return add(x, -np.asarray(y), mode)


def mul(x: Any, y: Any, mode: str) -> Any:
    """x * y."""
    return _toward(wide(x) * wide(y), 0.0, mode)


def fma(x: Any, y: Any, z: Any, mode: str) -> Any:
    """x * y + z, rounded once."""
    return _toward(*_two_sum(wide(x) * wide(y), wide(z)), mode)


def div(x: Any, y: Any, mode: str) -> Any:
    """x / y."""
    x, y = wide(x), wide(y)
    near = (x / y).astype(np.float32)
    return _moved(near, (x - wide(near) * y) * np.sign(y), mode)


def rcp(x: Any, mode: str) -> Any:
    """1 / x."""
    return div(np.float32(1), x, mode)


def sqrt(x: Any, mode: str) -> Any:
    """The square root."""
    near = np.sqrt(wide(x)).astype(np.float32)
    return _moved(near, wide(x) - wide(near) * wide(near), mode)


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """The rounded sum, and exactly what rounding took away."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _toward(value: Any, rest: Any, mode: str) -> Any:
    """``value`` + ``rest`` as float32."""
    near = value.astype(np.float32)
    beyond = value - wide(near)
    return _moved(near, np.where(beyond == 0, rest, beyond), mode)


def _moved(near: Any, beyond: Any, mode: str) -> Any:
    """``near``, or its neighbour where the exact result lies ``beyond`` it on the side that is wanted."""
    if mode == "rn":
        return near[()]
    up, down = beyond > 0, beyond < 0
    if mode == "rz":
        up, down = up & (near < 0), down & (near > 0)
    above, below = (np.nextafter(near, np.float32(side)) for side in (np.inf, -np.inf))
    made = np.where(up & (mode != "rd"), above, np.where(down & (mode != "ru"), below, near))
    return made.astype(np.float32)[()]
