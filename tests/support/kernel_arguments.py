"""Random arguments for kernels of tests."""

from __future__ import annotations

import numpy as np
from compiled import numpy_type

from tilec.ir.nodes import Kernel, TensorParam


def arguments(kernel: Kernel, dims: dict[str, int], seed: int) -> list[object]:
    """Random inputs, poisoned outputs."""
    rng = np.random.default_rng(seed)
    return [_argument(param, dims, rng) for param in kernel.params]


def _argument(param: object, dims: dict[str, int], rng: np.random.Generator) -> object:
    if not isinstance(param, TensorParam):
        return {"float": 1.5, "int": 3, "bool": True}[str(param.var.ty.dtype).rstrip("0123456789")]
    shape = [eval(text, {}, dims) for text in param.extents]
    dtype = numpy_type(str(param.buffer.dtype))
    if param.access == "out":
        return np.full(shape, 0 if dtype.kind in "iub" else np.nan, dtype)
    if param.strides is None:
        return _random(param.name, shape, dtype, dims, rng)
    pitch = eval(param.strides[0], {}, dims)
    return _random(param.name, [shape[0], pitch], dtype, dims, rng)[:, : shape[1]]


def _random(
    name: str, shape: list[int], dtype: np.dtype, dims: dict[str, int], rng: np.random.Generator
) -> np.ndarray:
    if name == "ids":
        limit = dims.get("V", dims.get("n", 1) + 1) + 1
        return (
            rng.permutation(np.resize(np.arange(-1, limit), int(np.prod(shape)))).reshape(shape).astype(dtype)
        )
    if dtype.kind in "iu":
        return rng.integers(-8 if dtype.kind == "i" else 0, 60, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    values = rng.standard_normal(shape) * 2
    if name in ("z",) or "nan" in name:
        values[rng.random(shape) < 0.3] = np.nan
    return values.astype(dtype)
