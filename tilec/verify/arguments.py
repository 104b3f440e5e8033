"""Arguments for one call: random data in arrays of the shapes and strides that the metadata asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.dtypes import find
from tilec.loader import evaluate_size

#: Elements between the rows of a strided tensor beyond what the shape needs, so that a wrong stride shows.
_PADDING = 16


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of a dtype's name; ml_dtypes has those that NumPy lacks."""
    found = find(name)
    text = found.numpy if found is not None else None
    if text is None:
        raise ValueError(f"{name} has no NumPy type")
    if text.startswith("ml_dtypes."):
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, text.partition(".")[2]))
        return extended
    return np.dtype(text)


def with_strides(params: Sequence[Mapping[str, Any]], dims: Mapping[str, int]) -> dict[str, int]:
    """``dims`` with every dim that stands alone as a stride large enough for its tensor's rows."""
    shapes = {text for param in params for text in param["extents"]}
    chosen = dict(dims)
    for param in params:
        if not param.get("strides"):
            continue
        needed = 1
        for extent, stride in zip(reversed(param["extents"]), reversed(param["strides"]), strict=True):
            if stride in dims and stride not in shapes:
                chosen[stride] = max(chosen[stride], needed + (_PADDING if needed > 1 else 0))
            needed = max(needed, evaluate_size(extent, chosen) * evaluate_size(stride, chosen))
    return chosen


def empty_tensor(param: Mapping[str, Any], dims: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """A tensor of a parameter; its memory, gaps between rows included, is NaN (or 1)."""
    dtype = numpy_dtype(param["dtype"])
    shape = [evaluate_size(text, dims) for text in param["extents"]]
    if not param["strides"]:
        return _poisoned(int(np.prod(shape)), dtype).reshape(shape)
    strides = [evaluate_size(text, dims) for text in param["strides"]]
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    flat = _poisoned(size, dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [stride * dtype.itemsize for stride in strides])


def _poisoned(count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind in "bui":
        return np.full(count, 1, dtype)
    return np.full(count, np.nan).astype(dtype)


def random_value(param: Mapping[str, Any], dims: Mapping[str, int], rng: np.random.Generator) -> Any:
    """A scalar, or a tensor of small random numbers."""
    dtype = numpy_dtype(param["dtype"])
    if param["kind"] != "tensor":
        return _random_scalar(param, dtype)
    tensor = empty_tensor(param, dims)
    if dtype.kind == "b":
        tensor[...] = rng.integers(0, 2, tensor.shape).astype(dtype)
    elif dtype.kind in "ui":
        tensor[...] = rng.integers(0, 4, tensor.shape).astype(dtype)
    else:
        tensor[...] = rng.standard_normal(tensor.shape).astype(dtype)
    return tensor


def _random_scalar(param: Mapping[str, Any], dtype: np.dtype[Any]) -> Any:
    if param["default"] is not None:
        return param["default"]
    return 0.75 if dtype.kind not in "bui" else 1


def placed(param: Mapping[str, Any], dims: Mapping[str, int], value: Any) -> Any:
    """A value of the author's ``inputs`` in an array with the parameter's strides."""
    if param["kind"] != "tensor":
        return value
    tensor = empty_tensor(param, dims)
    tensor[...] = np.asarray(value).astype(tensor.dtype)
    return tensor
