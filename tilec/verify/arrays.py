"""Arguments of a case: arrays with guarded surroundings, random or poisoned contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilec.ir.interp.values import cast, is_float, numpy_dtype, undefined
from tilec.verify.facts import KernelFacts, ParamFacts

_MARGIN = 1024  # bytes before and after
_ID_RANGE = set(range(1, 129))


class Guarded:
    """An array inside a larger block. Everything around its elements, gaps between rows too, holds NaN or a
    byte pattern: a read of it shows in the results, a write of it is found by `intact`."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> None:
        margin = _MARGIN // dtype.itemsize
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        self._block = undefined((2 * margin + max(span, 1),), dtype)
        self._covered = np.zeros(self._block.shape, np.bool_)
        if 0 not in shape:
            _window(self._covered, margin, shape, strides)[...] = True
        self._around = self._bytes()
        self.array = _window(self._block, margin, shape, strides)

    def _bytes(self) -> np.ndarray:
        """The surroundings, as bytes."""
        return np.frombuffer(self._block[~self._covered].tobytes(), np.uint8)

    def intact(self) -> bool:
        """Whether nothing outside of the array has changed."""
        return bool(np.array_equal(self._around, self._bytes()))


def _window(block: np.ndarray, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    steps = [stride * block.dtype.itemsize for stride in strides]
    return np.asarray(as_strided(block[start:], shape, steps))


def guarded(param: ParamFacts, dims: Mapping[str, int]) -> Guarded:
    """Undefined storage for a tensor parameter."""
    return Guarded(param.shape(dims), param.element_strides(dims), numpy_dtype(param.dtype))


def random_values(kernel: KernelFacts, dims: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Arrays and numbers for every parameter that the kernel reads, by name."""
    values: dict[str, Any] = {}
    extents = sorted({extent for param in kernel.tensors for extent in param.shape(dims)} & _ID_RANGE) or [1]
    for param in kernel.params:
        if not param.is_tensor:
            values[param.name] = dims.get(param.name, _scalar(param, rng))
        elif param.access != "out":
            values[param.name] = _tensor(param, param.shape(dims), int(rng.choice(extents)), rng)
    return values


def _scalar(param: ParamFacts, rng: np.random.Generator) -> Any:
    if param.default is not None:
        return param.default
    if param.dtype == "bool":
        return bool(rng.integers(2))
    if is_float(numpy_dtype(param.dtype)):
        return float(cast(rng.uniform(0.5, 2.0), numpy_dtype(param.dtype)))
    return int(rng.integers(1, 4))


def _tensor(param: ParamFacts, shape: tuple[int, ...], largest: int, rng: np.random.Generator) -> np.ndarray:
    """Normal floats; 8-bit integers of the whole range; wider ones from 0 to ``largest``, as ids and lengths
    are (one more than what indexes an axis of that extent)."""
    dtype = numpy_dtype(param.dtype)
    if is_float(dtype):
        return np.asarray(cast(rng.standard_normal(shape, np.float32), dtype))
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return rng.integers(0, largest, shape, endpoint=True).astype(dtype)
