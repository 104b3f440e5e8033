"""Functions of the C library and of CUDA that compute a value of each lane alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilec.emulate.state.numbers import MATH, MATH2, bits_set, cast, fma, least, long_fma, most, rounded_once
from tilec.errors import UnsupportedError
from tilec.ir.interp.named import COUNTS, NAMED

_FUSED = ("fmaf", "__fmaf_rn", "fma")
#: Functions of the header for 16-bit floats.
_HALF = {
    "__habs": "fabsf", "hceil": "ceilf", "hcos": "cosf", "herf": "erff", "hexp": "expf", "hexp10": "exp10f",
    "hexp2": "exp2f", "hfloor": "floorf", "hlog": "logf", "hlog10": "log10f", "hlog2": "log2f",
    "hrint": "rintf", "hrsqrt": "rsqrtf", "hsin": "sinf", "hsqrt": "sqrtf", "htan": "tanf", "htanh": "tanhf",
    "htrunc": "truncf",
}  # fmt: skip


def library(name: str, dtypes: Sequence[str]) -> tuple[Callable[..., Any], str]:
    """A function, and the dtype of what it gives for arguments of ``dtypes``. UnsupportedError for one that
    the emulator does not know."""
    table: dict[str, Callable[..., Any]] = MATH if len(dtypes) == 1 else MATH2
    dtype = dtypes[0] if dtypes[0] in ("float16", "float64") else "float32"
    if name in _FUSED:
        wide = "float64" if dtype == "float64" else "float32"
        return rounded_once(long_fma if wide == "float64" else fma, wide), wide
    if name in table:
        return _rounded(table[name], dtype), dtype
    if name in ("max", "min", "fmax", "fmin"):
        return partial(most if "max" in name else least, dtype=dtypes[0]), dtypes[0]
    if name in ("__popc", "__popcll"):
        return partial(bits_set, bits=64 if name == "__popcll" else 32), "int32"
    if name in NAMED:
        return NAMED[name], "int32" if name in COUNTS else dtypes[0]
    if name in _HALF:
        return _rounded(MATH[_HALF[name]], "float16"), "float16"
    raise UnsupportedError(
        f"the emulator has no function {name}",
        remedy="write the kernel without it, or add it to tilec/emulate/library.py",
    )


def _rounded(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """A function of ``dtype``; one of float16 is computed as float32."""
    made = rounded_once(function, dtype)
    return made if dtype != "float16" else lambda *args: cast(made(*args), "float32", dtype)
