"""NumPy values of the tile language: types, casts by the language's store rules, undefined contents."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tilec.dtypes import DTYPES
from tilec.errors import UnsupportedError

#: Every byte of an integer nobody wrote.
PATTERN = 0xA5


@functools.cache
def numpy_dtype(name: str) -> np.dtype:
    """The NumPy type of a dtype; bfloat16 and the small floats come from ml_dtypes.

    Raises:
        UnsupportedError: for types without a NumPy counterpart, vectors included.
    """
    row = DTYPES.get(name)
    if row is None or row.numpy is None:
        raise UnsupportedError(f"the interpreter has no {name} values")
    if not row.numpy.startswith("ml_dtypes."):
        return np.dtype(row.numpy)
    import ml_dtypes

    found: np.dtype = np.dtype(getattr(ml_dtypes, row.numpy.removeprefix("ml_dtypes.")))
    return found


@functools.cache
def is_float(dtype: np.dtype) -> bool:
    """Whether a NumPy type is a float, those of ml_dtypes included (their kind is "V" or "f")."""
    return dtype.kind not in "biu" and not dtype.name.startswith(("int", "uint"))


@functools.cache
def is_foreign(dtype: np.dtype) -> bool:
    """Whether a float type is one of ml_dtypes."""
    return is_float(dtype) and dtype not in (np.float16, np.float32, np.float64)


def wide(value: Any) -> Any:
    """A float value in float64, where the functions of one or two arguments are computed."""
    return np.asarray(value).astype(np.float64)


@functools.cache
def largest(dtype: np.dtype) -> float:
    """The largest finite value of a float type."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)


def cast(value: Any, dtype: np.dtype) -> Any:
    """``value`` as ``dtype``: float to integer truncates, to a narrower float rounds to nearest even, to
    float8 saturates to finite, integer to a narrower integer wraps, to bool compares with zero."""
    array = np.asarray(value)
    if array.dtype == dtype:
        return array[()]
    if dtype == np.bool_:
        return array != np.zeros((), array.dtype)
    if not is_float(dtype) and is_float(array.dtype):
        return _truncate(array, dtype)
    if dtype.itemsize == 1 and is_float(dtype):
        array = np.clip(wide(array), -largest(dtype), largest(dtype))
    if is_foreign(dtype):
        array = _nearest(array, dtype) if array.dtype == np.float64 else array
        array = array.astype(np.float32)
    with np.errstate(over="ignore"):
        return array.astype(dtype)[()]


def _nearest(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float64 values rounded to those of a float type of ml_dtypes, ties to even; ml_dtypes itself rounds
    twice, through float32 and for float8_e5m2 through float16."""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(array)
    step = np.maximum(exponent - 1, info.minexp) - info.nmant
    with np.errstate(all="ignore"):
        return np.asarray(np.ldexp(np.rint(np.ldexp(array, -step)), step))


def held(number: float, name: str) -> float:
    """A number as a float dtype holds it, rounded once; what lies beyond its finite values stays."""
    found = float(cast(np.float64(number), numpy_dtype(name)))
    return found if np.isfinite(found) else number


def _truncate(array: np.ndarray, dtype: np.dtype) -> Any:
    """Toward zero, through 64 bits, so that wrapping is the same on every machine; NaN gives 0."""
    whole = np.trunc(wide(array))
    if dtype == np.uint64:
        return np.nan_to_num(whole, nan=0.0).astype(np.uint64)[()]
    bound = float(2**63)
    inside = np.where((whole >= -bound) & (whole < bound), whole, 0.0)
    return inside.astype(np.int64).astype(dtype)[()]


def undefined(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of contents nobody wrote: NaN for floats, a byte pattern for integers, True for bool."""
    if is_float(dtype):
        return np.full(shape, np.nan, np.float32).astype(dtype)
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    return np.full((*shape, dtype.itemsize), PATTERN, np.uint8).view(dtype).reshape(shape)


def lowest(dtype: np.dtype) -> Any:
    """The identity of max."""
    return dtype.type(-np.inf) if is_float(dtype) else dtype.type(np.iinfo(dtype).min)


def highest(dtype: np.dtype) -> Any:
    """The identity of min."""
    return dtype.type(np.inf) if is_float(dtype) else dtype.type(np.iinfo(dtype).max)
