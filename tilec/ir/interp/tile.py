"""Tile statements on NumPy arrays: Copy, Fill, Reduce, Scan, and the updates of Atomic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.errors import EvalError
from tilec.ir.interp.values import cast, highest, is_float, lowest
from tilec.ir.reductions import REDUCTIONS

_ENDS = {"lowest": lowest, "highest": highest}
#: Keeping NaN, and giving the operand that is a number.
_EXTREMES = {"min": (np.minimum, np.fmin), "max": (np.maximum, np.fmax)}
_BITWISE = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}


def reshaped(box: np.ndarray, extent: Sequence[int]) -> np.ndarray:
    """``box`` with the extents of the other side: axes of extent 1 come and go, the others pair up in order.

    Raises:
        EvalError: where run-time extents do not pair up.
    """
    if [n for n in box.shape if n != 1] != [n for n in extent if n != 1]:
        raise EvalError(f"copy of extents {box.shape} to {tuple(extent)}")
    return box.reshape(tuple(extent))


def reduce(kind: str, src: np.ndarray, axis: int, dtype: np.dtype, nan: bool) -> np.ndarray:
    """The reduction of ``src`` along ``axis``, elements cast to ``dtype`` first; of none, the identity."""
    values = np.asarray(cast(src, dtype))
    if kind in _BITWISE:
        return np.asarray(_BITWISE[kind].reduce(values, axis=axis, initial=identity(kind, dtype)))
    if REDUCTIONS[kind].magnitudes:
        values = np.abs(values)
    if REDUCTIONS[kind].join == "sum":
        total = values.astype(np.float64 if is_float(dtype) else np.int64).sum(axis=axis)
        return np.asarray(cast(total, dtype))
    larger = extreme(REDUCTIONS[kind].join, dtype, nan)
    return np.asarray(larger.reduce(values, axis=axis, initial=identity(kind, dtype)))


def combine(kind: str, old: np.ndarray, new: np.ndarray, nan: bool) -> np.ndarray:
    """Old contents and a reduction together."""
    row = REDUCTIONS[kind]
    if row.join == "sum":
        return np.asarray(old + new)
    if row.is_bitwise:
        return np.asarray(_BITWISE[kind](old, new))
    return np.asarray(extreme(row.join, old.dtype, nan)(np.abs(old) if row.magnitudes else old, new))


def identity(kind: str, dtype: np.dtype) -> Any:
    """What a reduction of nothing gives."""
    start = REDUCTIONS[kind].start
    if start == "ones":
        return np.invert(dtype.type(0))
    if start == "zero":
        return dtype.type(0)
    return _ENDS[start](dtype)


def scan(kind: str, src: np.ndarray, axis: int, dtype: np.dtype, reverse: bool) -> np.ndarray:
    """The inclusive scan of ``src`` along ``axis``, elements cast to ``dtype`` first."""
    values = np.asarray(cast(src, dtype))
    values = np.flip(values, axis) if reverse else values
    if kind == "sum":
        wide = np.float64 if is_float(dtype) else np.int64
        found = np.asarray(cast(values.astype(wide).cumsum(axis=axis), dtype))
    else:
        found = extreme(kind, dtype, False).accumulate(values, axis=axis)
    return np.flip(found, axis) if reverse else found


def update(kind: str, dtype: np.dtype) -> np.ufunc:
    """How an atomic statement combines the element and the value."""
    if kind == "or":
        return np.bitwise_or
    return np.add if kind == "add" else extreme(kind, dtype, False)


def extreme(kind: str, dtype: np.dtype, nan: bool) -> np.ufunc:
    """max or min; of floats the operand that is no NaN, unless NaN is to spread (``nan``)."""
    keeping, ignoring = _EXTREMES[kind]
    return ignoring if is_float(dtype) and not nan else keeping
