"""Matrices of 8- and 4-bit floats with scales for neighbours along K."""

from __future__ import annotations

import numpy as np

from tilec.ir.interp.values import numpy_dtype


def operand(numbers: np.ndarray, scales: np.ndarray, group: int, turned: bool) -> np.ndarray:
    """The matrix (rows, K) of ``numbers`` times ``scales`` (rows, K/group), in float64. ``turned``: numbers
    are stored (K, rows). Bytes are two float4_e2m1fn each, and float8_e8m0fnu."""
    values = decoded(numbers.reshape(numbers.shape[-2:]))
    values = values.T if turned else values
    held = scales.reshape(scales.shape[-2:])
    powers = held.view(numpy_dtype("float8_e8m0fnu")) if held.dtype == np.uint8 else held
    return values * np.repeat(powers.astype(np.float64), group, axis=-1)


def decoded(numbers: np.ndarray) -> np.ndarray:
    """The numbers of a matrix in float64, of bytes two each."""
    if numbers.dtype != np.uint8:
        return numbers.astype(np.float64)
    halves = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(len(numbers), -1)
    return np.asarray(halves.view(numpy_dtype("float4_e2m1fn")).astype(np.float64))
