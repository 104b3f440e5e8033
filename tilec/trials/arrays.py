"""Arguments of a case: arrays with guarded surroundings, random or poisoned contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilec.ir.interp.values import cast, is_float, numpy_dtype, undefined
from tilec.package.model import ParamRecord, evaluate
from tilec.portable.guarded import Guarded
from tilec.trials.facts import KernelFacts
from tilec.trials.indices import Indices

_NAN = 0xFF  # in every byte makes NaN of every float
_ID_RANGE = set(range(1, 129))


def guarded(param: ParamRecord, dims: Mapping[str, int], *, shifted: bool = False) -> Guarded:
    """Undefined storage for a tensor parameter: NaN, a byte pattern, or True. ``shifted``: aligned to its
    elements and to no more."""
    dtype = numpy_dtype(param.dtype)
    poison = int(undefined((1,), dtype).view(np.uint8)[0]) if not is_float(dtype) else _NAN
    shift = dtype.itemsize if shifted else 0
    return Guarded(param.shape(dims), param.element_strides(dims), dtype, poison, shift=shift)


def random_values(
    kernel: KernelFacts,
    dims: Mapping[str, int],
    rng: np.random.Generator,
    indices: Mapping[str, Indices] | None = None,
) -> dict[str, Any]:
    """Arrays and numbers for every parameter that the kernel reads, by name. ``indices`` says which integers
    index what; of the others every one may be an id or a length."""
    values: dict[str, Any] = {}
    extents = sorted({extent for param in kernel.tensors for extent in param.shape(dims)} & _ID_RANGE) or [1]
    for param in kernel.params:
        if not param.is_tensor:
            values[param.name] = dims.get(param.name, _scalar(param, rng))
        elif param.access != "out":
            known = (indices or {}).get(param.name)
            largest = int(rng.choice(extents)) if known is None else _least(known.extents, dims)
            made = _tensor(param, param.shape(dims), largest, rng)
            values[param.name] = made if known is None or not known.are_bounds else np.sort(made, axis=-1)
    return values


def plant_special(kernel: KernelFacts, values: dict[str, Any], rng: np.random.Generator) -> None:
    """Puts a NaN and both infinities, where the type has them, into every tensor of floats that is read."""
    for param in kernel.tensors:
        array = values.get(param.name)
        if array is None or not is_float(array.dtype) or not array.size:
            continue
        values[param.name] = array = np.array(array)
        kinds = [special for special in (np.nan, np.inf, -np.inf) if _has(array.dtype, special)]
        elements = rng.choice(array.size, min(len(kinds), array.size), replace=False)
        for element, special in zip(elements, kinds, strict=False):
            array[np.unravel_index(element, array.shape)] = cast(special, array.dtype)


def _has(dtype: np.dtype, special: float) -> bool:
    """Whether a type holds NaN, or an infinity."""
    kept = np.float64(cast(special, dtype))
    return bool(np.isnan(kept) if np.isnan(special) else kept == special)


def _least(extents: tuple[str, ...], dims: Mapping[str, int]) -> int:
    return min(evaluate(text, dims) for text in extents)


def _scalar(param: ParamRecord, rng: np.random.Generator) -> Any:
    if param.default is not None:
        return param.default
    if param.dtype == "bool":
        return bool(rng.integers(2))
    if is_float(numpy_dtype(param.dtype)):
        return float(cast(rng.uniform(0.5, 2.0), numpy_dtype(param.dtype)))
    return int(rng.integers(1, 4))


def _tensor(param: ParamRecord, shape: tuple[int, ...], largest: int, rng: np.random.Generator) -> np.ndarray:
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
