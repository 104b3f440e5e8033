"""Functions of the language on NumPy values.

Float functions are computed in float64 and rounded once to the argument's type, so that the interpreter's own
error stays far below any tolerance; integer functions and bit tests work on the type itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.errors import UnsupportedError
from tilec.ir.interp.values import cast, is_foreign, wide

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    """The error function, element by element."""
    return np.asarray(_erf(x), dtype=np.float64)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x); infinite at zero, NaN below."""
    return 1.0 / np.sqrt(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)); 0 and 1 at the infinities."""
    return 1.0 / (1.0 + np.exp(-x))


def exp10(x: Any) -> Any:
    """10 to the x."""
    return np.power(10.0, x)


def power(x: Any, y: Any) -> Any:
    """x to the y, as C has it: NumPy takes the square root for an exponent of 0.5, NaN of minus infinity."""
    return np.power(np.where((y == 0.5) & np.isneginf(x), np.inf, x), y)


def round_away(x: Any) -> Any:
    """To the nearest integer, ties away from zero."""
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z."""
    return x * y + z


#: Computed in float64, rounded to the type of the call.
WIDE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "fabs", "hypot", "fmod", "copysign")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2": np.arctan2,
    "pow": power,
    "nearbyint": np.rint,
    "round": round_away,
    "erf": erf,
    "exp10": exp10,
    "fma": fma,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
}
_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def intrinsic(word: str, dtype: np.dtype) -> Callable[..., Any]:
    """The function that a call of ``word`` (without TVM's name space) with result type ``dtype`` computes.

    Raises:
        UnsupportedError: for functions without a meaning here.
    """
    if word in WIDE:
        return _rounded(WIDE[word], dtype)
    if word in _TESTS:
        return _TESTS[word]
    if word in _OTHERS:
        return _OTHERS[word](dtype)
    raise UnsupportedError(f"the interpreter has no function {word}")


def _rounded(function: Callable[..., Any], dtype: np.dtype) -> Callable[..., Any]:
    if is_foreign(dtype):  # code computes these in float32
        return lambda *args: cast(np.float32(function(*(wide(arg) for arg in args))), dtype)
    return lambda *args: cast(function(*(wide(arg) for arg in args)), dtype)


def _same(dtype: np.dtype) -> Callable[[Any], Any]:
    return lambda value: value


def _reinterpret(dtype: np.dtype) -> Callable[[Any], Any]:
    return lambda value: np.ascontiguousarray(value).view(dtype).reshape(np.shape(value))[()]


def _nextafter(dtype: np.dtype) -> Callable[[Any, Any], Any]:
    return np.nextafter


def _ldexp(dtype: np.dtype) -> Callable[[Any, Any], Any]:
    return lambda value, power: cast(np.ldexp(wide(value), np.asarray(power).astype(np.int32)), dtype)


def _bits(value: Any) -> np.ndarray:
    """The bits of integers, most significant first, on a new last axis."""
    array = np.ascontiguousarray(value)
    octets = array.astype(array.dtype.newbyteorder(">")).view(np.uint8).reshape((*np.shape(value), -1))
    return np.unpackbits(octets, axis=-1)


def _popcount(dtype: np.dtype) -> Callable[[Any], Any]:
    return lambda value: cast(_bits(value).sum(axis=-1), dtype)


def _clz(dtype: np.dtype) -> Callable[[Any], Any]:
    def clz(value: Any) -> Any:
        bits = _bits(value)
        return cast(np.where(bits.any(axis=-1), bits.argmax(axis=-1), bits.shape[-1]), dtype)

    return clz


_OTHERS: dict[str, Callable[[np.dtype], Callable[..., Any]]] = {
    "likely": _same,
    "reinterpret": _reinterpret,
    "nextafter": _nextafter,
    "ldexp": _ldexp,
    "popcount": _popcount,
    "clz": _clz,
}
