"""Comparing an output with what was expected, by tolerances that follow from the kernel's types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tilec.ir.interp.values import is_float
from tilec.portable.nearness import near

#: Of products that add up in float16: each of a few hundred terms rounds the sum.
HALF_SUMS = "sums in float16"
#: dtype -> (rtol, atol) where the manifest gives none; the coarsest type among a kernel's tensors decides, as
#: intermediate values are rounded to it. A few units in the last place; more for float32 sums, and for TF32,
#: to which tensor cores round operands that are float32 in the reference: sums of a few hundred products.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-10, 1e-10),
    "float32": (1e-4, 1e-4),
    "tfloat32": (2e-2, 2e-2),
    "float16": (5e-3, 5e-3),
    HALF_SUMS: (3e-2, 3e-2),
    "bfloat16": (3e-2, 3e-2),
    "float8_e4m3fn": (0.25, 0.25),
    "float8_e5m2": (0.5, 0.5),
}
#: So many terms a float32 sum may have before its roundings, which grow with them, exceed that.
_TERMS = 512
_COARSEST_FIRST = tuple(reversed(TOLERANCES))


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= atol + rtol * |expected|, for all but a share ``max_mismatch`` of the elements.
    ``of_terms``: where terms of sums are rounded, and sums are small beside them, rtol is of the root mean
    square of the output as well."""

    rtol: float
    atol: float
    max_mismatch: float = 0.0
    of_terms: bool = False


@dataclass(frozen=True)
class Difference:
    """How an output differs: ``text`` is empty where it is close enough; ``error`` the largest difference."""

    error: float
    text: str


def default_tolerance(dtypes: Iterable[str], terms: int = 1) -> Tolerance:
    """The tolerance of a kernel whose tensors have these types and whose sums have so many ``terms``; exact
    without floats."""
    present = set(dtypes)
    coarsest = next((dtype for dtype in _COARSEST_FIRST if dtype in present), None)
    if coarsest is None:
        return Tolerance(0.0, 0.0)
    rtol, atol = TOLERANCES[coarsest]
    return Tolerance(rtol, atol * max(1.0, terms / _TERMS) if coarsest == "float32" else atol)


def compare(name: str, got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> Difference:
    """The difference of one output; NaN equals NaN. Integers of a kernel with floats may be one off."""
    if got.shape != expected.shape:
        return Difference(float("inf"), f"{name} has shape {got.shape}, expected {expected.shape}")
    exact = not is_float(got.dtype) and tolerance.rtol == 0
    slack = 1.0 if not is_float(got.dtype) and not exact else tolerance.atol
    left, right = got.astype(np.float64), expected.astype(np.float64)
    if tolerance.of_terms:
        slack += tolerance.rtol * _root_mean_square(right)
    with np.errstate(invalid="ignore", over="ignore"):
        distance, is_near = np.abs(left - right), near(left, right, tolerance.rtol, slack)
    wrong = np.argwhere(~is_near)
    finite = distance[np.isfinite(distance)]
    error = float(finite.max()) if finite.size else 0.0
    if len(wrong) <= tolerance.max_mismatch * is_near.size:
        return Difference(error, "")
    return Difference(error, _describe(name, left, right, wrong))


def _root_mean_square(values: np.ndarray) -> float:
    """That of the finite ones."""
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _describe(name: str, got: np.ndarray, expected: np.ndarray, wrong: np.ndarray) -> str:
    at = tuple(int(index) for index in wrong[0])
    where = ", ".join(map(str, at))
    return (
        f"{name}: {len(wrong)} of {got.size} elements are wrong, first [{where}]: "
        f"got {got[at]:.9g}, expected {expected[at]:.9g}"
    )
