"""What functions compute that expressions call by a name of their own (`call_pure_extern`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilec.ir.extremes import KEEPING
from tilec.ir.interp import directed
from tilec.ir.interp.values import wide

#: CUDA's approximate functions of one float32 -> the function in float64.
FAST: dict[str, Callable[[Any], Any]] = {
    "__expf": np.exp,
    "__exp10f": lambda x: np.power(10.0, x),
    "__logf": np.log,
    "__log2f": np.log2,
    "__log10f": np.log10,
    "__sinf": np.sin,
    "__cosf": np.cos,
    "__tanf": np.tan,
}


def _rounded(function: Callable[..., Any], *args: Any) -> Any:
    """In float64, rounded once."""
    return np.asarray(function(*map(wide, args))).astype(np.float32)[()]


_DIRECTED: dict[str, Callable[..., Any]] = {
    "add": directed.add,
    "sub": directed.sub,
    "mul": directed.mul,
    "div": directed.div,
    "rcp": directed.rcp,
    "sqrt": directed.sqrt,
    "maf": directed.fma,
}
_DOUBLE = {
    "__dadd_rn": np.add,
    "__dsub_rn": np.subtract,
    "__dmul_rn": np.multiply,
    "__ddiv_rn": np.divide,
    "__drcp_rn": np.reciprocal,
    "__dsqrt_rn": np.sqrt,
}


def _octets(value: Any, bits: int) -> np.ndarray:
    """The bits of integers, most significant first, on a new last axis."""
    words = np.atleast_1d(np.asarray(value)).astype(f"int{bits}").astype(f">i{bits // 8}")
    return np.unpackbits(words.view(np.uint8).reshape(*words.shape, bits // 8), axis=-1)


def _population(value: Any, bits: int) -> Any:
    """How many bits are set, as int32."""
    return _octets(value, bits).sum(axis=-1).astype(np.int32).reshape(np.shape(value))[()]


def _leading(value: Any, bits: int) -> Any:
    """How many bits above the highest set one are not, as int32."""
    found = _octets(value, bits)
    count = np.where(found.any(axis=-1), found.argmax(axis=-1), bits)
    return count.astype(np.int32).reshape(np.shape(value))[()]


#: CUDA's functions of integers, whose result is int32.
COUNTS: dict[str, Callable[[Any], Any]] = {
    "__popc": partial(_population, bits=32),
    "__popcll": partial(_population, bits=64),
    "__clz": partial(_leading, bits=32),
    "__clzll": partial(_leading, bits=64),
}

#: Every function by its name, which is CUDA's or C's.
NAMED: dict[str, Callable[..., Any]] = {
    **{name: partial(_rounded, function) for name, function in FAST.items()},
    **{
        f"__f{name}_{mode}": partial(function, mode=mode)
        for name, function in _DIRECTED.items()
        for mode in directed.MODES
    },
    **_DOUBLE,
    **COUNTS,
    "__frsqrt_rn": partial(_rounded, lambda x: 1.0 / np.sqrt(x)),
    "__fdividef": partial(_rounded, np.divide),
    KEEPING["max"]: np.maximum,
    KEEPING["min"]: np.minimum,
}
