"""Derives the coefficients in tilec/lowering (cpu/math, cuda): run it to see them and their errors.

Polynomials: Remez exchange on the relative error (E. Remez, 1934), in 60 digits. Rationals: the same error
levelled by Lawson's reweighted linearised least squares (C. Lawson, 1961). Needs mpmath and NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """``name``: where it is used. ``target``(t) ~ sum c_k t^k on [low, high], the error weighted by
    ``weight``(t) (what turns it into the relative error of the function that is computed from it)."""

    name: str
    target: Function
    weight: Function
    low: mpf
    high: mpf
    degree: int
    double: bool = False


def remez(fit: Fit, rounds: int = 12) -> tuple[list[mpf], mpf]:
    """Coefficients (constant first) and the largest weighted error."""
    count = fit.degree + 2
    nodes = [_chebyshev(fit.low, fit.high, k, count) for k in range(count)]
    coefficients: list[mpf] = []
    error = mpf(0)
    for _ in range(rounds):
        coefficients = _solve(fit, nodes)
        nodes, error = _extrema(fit, coefficients, count)
    return coefficients, error


def _chebyshev(low: mpf, high: mpf, k: int, count: int) -> mpf:
    return (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / (count - 1))


def _solve(fit: Fit, nodes: list[mpf]) -> list[mpf]:
    rows, right = [], []
    for k, node in enumerate(nodes):
        rows.append([node**power for power in range(fit.degree + 1)] + [(-1) ** k / fit.weight(node)])
        right.append(fit.target(node))
    return list(mp.lu_solve(mp.matrix(rows), mp.matrix(right)))[:-1]


def _extrema(fit: Fit, coefficients: list[mpf], count: int) -> tuple[list[mpf], mpf]:
    """One extremum of the error in each of ``count`` runs of equal sign, on a dense Chebyshev grid."""
    grid = [_chebyshev(fit.low, fit.high, k, 60 * count) for k in range(60 * count)]
    errors = [(mp.polyval(coefficients[::-1], t) - fit.target(t)) * fit.weight(t) for t in grid]
    runs: list[tuple[mpf, mpf]] = []
    for t, error in zip(grid, errors, strict=True):
        if runs and (runs[-1][1] > 0) == (error > 0):
            runs[-1] = max(runs[-1], (t, error), key=lambda item: abs(item[1]))
        else:
            runs.append((t, error))
    if len(runs) < count:
        raise ArithmeticError(f"{fit.name}: the error changes sign {len(runs)} times, {count} expected")
    start = max(range(len(runs) - count + 1), key=lambda k: min(abs(run[1]) for run in runs[k : k + count]))
    chosen = runs[start : start + count]
    return [t for t, _ in chosen], max(abs(error) for _, error in chosen)


def rational(
    target: Callable[[np.ndarray], np.ndarray], high: float, top: int, bottom: int, rounds: int = 60
) -> tuple[np.ndarray, np.ndarray, float]:
    """p, q (constant first, q[0] = 1) with p(t)/q(t) ~ target(t) in relative error on [0, high]."""
    t = high * (0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, 4001)))
    want = target(t)
    scale, emphasis = np.ones_like(t), np.ones_like(t)
    for _ in range(rounds):
        columns = [t**k / want for k in range(top + 1)] + [-(t**k) for k in range(1, bottom + 1)]
        matrix = np.stack(columns, axis=1) * (np.sqrt(emphasis) / scale)[:, None]
        norms = np.linalg.norm(matrix, axis=0)
        solution = np.linalg.lstsq(matrix / norms, np.sqrt(emphasis) / scale, rcond=None)[0] / norms
        p, q = solution[: top + 1], np.concatenate([[1.0], solution[top + 1 :]])
        scale = np.abs(np.polyval(q[::-1], t))
        error = np.abs(np.polyval(p[::-1], t) / np.polyval(q[::-1], t) / want - 1)
        emphasis = emphasis * (error / error.max() + 1e-3)
        emphasis /= emphasis.max()
    return p, q, float(error.max())


def _series(value: Function, at_zero: mpf) -> Function:
    """``value`` with the removable singularity at 0 filled in."""
    return lambda t: at_zero if t == 0 else value(t)


_LN2 = mp.log(2)
_SQRT2 = mp.sqrt(2)
_PI = mp.pi

FITS = (
    Fit(
        "exp: exp(t) = 1 + t + t^2 Q(t)",
        _series(lambda t: (mp.exp(t) - 1 - t) / t**2, mpf(1) / 2),
        lambda t: t**2 / mp.exp(t) + mpf(10) ** -9,
        -_LN2, mpf("0.71"), 5,
    ),
    Fit(
        "exp: exp(t) = 1 + t + t^2 Q(t), with AVX-512",
        _series(lambda t: (mp.exp(t) - 1 - t) / t**2, mpf(1) / 2),
        lambda t: t**2 / mp.exp(t) + mpf(10) ** -9,
        -_LN2 / 2, mpf("0.355"), 4,
    ),
    Fit(
        "exp2: 2^t = 1 + t Q(t)",
        _series(lambda t: (2**t - 1) / t, _LN2),
        lambda t: abs(t) / 2**t + mpf(10) ** -9,
        mpf(-1), mpf(1), 6,
    ),
    Fit(
        "exp2: 2^t = 1 + t Q(t), with AVX-512",
        _series(lambda t: (2**t - 1) / t, _LN2),
        lambda t: abs(t) / 2**t + mpf(10) ** -9,
        mpf(0), mpf(1), 5,
    ),
    Fit(
        "log: log(1 + t) = t - t^2/2 + t^3 Q(t)",
        _series(lambda t: (mp.log1p(t) - t + t**2 / 2) / t**3, mpf(1) / 3),
        lambda t: t**2,
        1 / _SQRT2 - 1, _SQRT2 - 1, 7,
    ),
    Fit(
        "sin: sin(r) = r + r^3 Q(r^2)",
        _series(lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, mpf(-1) / 6),
        lambda t: t + mpf(10) ** -9,
        mpf(0), (_PI / 4) ** 2, 2,
    ),
    Fit(
        "cos: cos(r) = 1 - r^2/2 + r^4 Q(r^2)",
        _series(lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2, mpf(1) / 24),
        lambda t: t**2 + mpf(10) ** -9,
        mpf(0), (_PI / 4) ** 2, 2,
    ),
    Fit(
        "atan: atan(x) = x + x^3 Q(x^2)",
        _series(lambda t: (mp.atan(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, mpf(-1) / 3),
        lambda t: t + mpf(10) ** -6,
        mpf(0), mpf(1), 9,
    ),
    Fit(
        "asin: asin(x) = x + x^3 Q(x^2)",
        _series(lambda t: (mp.asin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, mpf(1) / 6),
        lambda t: t + mpf(10) ** -6,
        mpf(0), mpf(1) / 4, 4,
    ),
    Fit(
        "sinh: sinh(x) = x + x^3 Q(x^2)",
        _series(lambda t: (mp.sinh(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, mpf(1) / 6),
        lambda t: t + mpf(10) ** -9,
        mpf(0), mpf(1), 2,
    ),
    Fit(
        "pow: log2(m) = s Q(s^2), s = (m - 1) / (m + 1)",
        _series(lambda t: 2 * mp.atanh(mp.sqrt(t)) / mp.sqrt(t) / _LN2, 2 / _LN2),
        lambda t: mpf(1),
        mpf(0), ((_SQRT2 - 1) / (_SQRT2 + 1)) ** 2, 6, double=True,
    ),
    Fit(
        "erfc: log2(erfc(u)) = u Q(u)",
        _series(lambda t: mp.log(mp.erfc(t), 2) / t, -2 / (mp.sqrt(_PI) * _LN2)),
        lambda t: t * mp.exp(-t) + mpf(10) ** -9,
        mpf(0), mpf("4.25"), 7,
    ),
    Fit(
        "pow: 2^r = Q(r)",
        lambda t: mpf(2) ** t,
        lambda t: mpf(1),
        mpf(-1) / 2, mpf(1) / 2, 8, double=True,
    ),
)  # fmt: skip


def _erf_over_x(t: np.ndarray) -> np.ndarray:
    return np.array([float(mp.erf(mp.sqrt(v)) / mp.sqrt(v)) if v > 0 else 2 / np.sqrt(np.pi) for v in t])


def _tanh_over_x(t: np.ndarray) -> np.ndarray:
    return np.array([float(mp.tanh(mp.sqrt(v)) / mp.sqrt(v)) if v > 0 else 1.0 for v in t])


RATIONALS = (
    ("erf: erf(x) = x P(x^2) / Q(x^2)", _erf_over_x, 3.92**2, 6, 5),
    ("tanh: tanh(x) = x P(x^2) / Q(x^2)", _tanh_over_x, 9.02**2, 5, 4),
)


#: name, target of |x|, pieces for each unit of |x|, degree: polynomials in the distance from the middle of a
#: piece, as a part of its length. The error is relative.
PIECES = (
    ("erf: erf(x) = x Q(|x|), with AVX-512", _series(lambda t: mp.erf(t) / t, 2 / mp.sqrt(_PI)), 4.08, 4),
)
COUNT = 16


def piece(target: Function, rate: float, degree: int, number: int) -> Fit:
    """The fit of one piece."""

    def inside(t: mpf) -> mpf:
        return target(abs(number + mpf(1) / 2 + t) / rate)

    return Fit(f"piece {number}", inside, lambda t: 1 / inside(t), -mpf(1) / 2, mpf(1) / 2, degree)


def report() -> list[str]:
    """Two lines per fit: what it is; its largest error and the coefficients, constant first. Of pieces a line
    for the coefficients of each degree."""
    lines = []
    for fit in FITS:
        coefficients, error = remez(fit)
        digits = 17 if fit.double else 9
        numbers = ", ".join(mp.nstr(c, digits) for c in coefficients)
        lines += [fit.name, f"  2^{float(mp.log(error, 2)):.1f}: {numbers}"]
    for name, target, high, top, bottom in RATIONALS:
        p, q, worst = rational(target, high, top, bottom)
        parts = " / ".join(", ".join(f"{c:.9g}" for c in side) for side in (p, q))
        lines += [name, f"  2^{np.log2(worst):.1f}: {parts}"]
    for name, target, rate, degree in PIECES:
        fits = [remez(piece(target, rate, degree, number)) for number in range(COUNT)]
        lines += [name, f"  2^{float(mp.log(max(error for _, error in fits), 2)):.1f}:"]
        lines += ["  " + ", ".join(mp.nstr(c[k], 9) for c, _ in fits) for k in range(degree + 1)]
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(report()) + "\n")
