"""Arithmetic that several kernels share: activations as tile expressions, and their NumPy twins."""

from __future__ import annotations

import math

import numpy as np

import tilec.language as T

LOG2_E = 1.4426950408889634
#: Elements of a vector of 16 bytes.
ELEMENTS = {"float32": 4, "float16": 8, "bfloat16": 8}


def gelu(x):
    """Gaussian error linear unit, the exact form: ``x * Phi(x)`` through erf."""
    return 0.5 * x * (1.0 + T.erf(x * math.sqrt(0.5)))


def silu(x):
    """``x * sigmoid(x)``, also called swish."""
    return x * T.sigmoid(x)


def identity(x):
    """No activation."""
    return x


ACTIVATIONS = {"none": identity, "gelu": gelu, "silu": silu}


def activation(name):
    """The tile expression of an activation; ValueError lists the known names."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}: use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def ends_of(first, N, width):
    """Which of ``width`` columns from ``first`` on, which may be below 0, a row of N columns has: from which
    one on and before which one, in 32 bits."""
    return T.cast(T.max(0 - first, 0), "int32"), T.cast(T.min(N - first, width), "int32")


def is_between(column, begin, end):
    """Whether a column is one of `ends_of`."""
    return T.And(column >= begin, column < end)


def is_inner(c, begin, end, lot):
    """Whether all columns of a lot are."""
    return T.And(c * lot >= begin, (c + 1) * lot <= end)


def vector_start(row, pitch, dtype):
    """The column, 0 or less, at which the vector begins that a row begins in, of rows ``pitch`` elements
    apart."""
    step = ELEMENTS[dtype]
    return row * pitch // step * step - row * pitch


@T.macro
def tell_parts(values, tile, part, parts):
    """tile[part] = values in all blocks of a cluster of ``parts``, behind its next barrier."""
    for block in T.serial(parts):
        T.copy_cluster(values, tile[part, 0], dst_block=block)


def f32(array):
    """The array as float32, whatever its storage type; references compute in it."""
    return np.asarray(array).astype(np.float32)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu_reference(x):
    """NumPy twin of :func:`gelu`."""
    return (0.5 * x * (1.0 + _erf(x * math.sqrt(0.5)))).astype(np.float32)


def silu_reference(x):
    """NumPy twin of :func:`silu`, without powers that overflow."""
    return x * np.exp(np.minimum(x, 0.0)) / (1.0 + np.exp(-np.abs(x)))


def normalise_reference(x, eps, center):
    """Rows scaled to unit mean square (RMSNorm), or first centred on their mean (LayerNorm)."""
    if center:
        x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
