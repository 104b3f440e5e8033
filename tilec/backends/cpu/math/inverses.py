"""asin, acos, atan, atan2, asinh, acosh and atanh of float32 vectors.

The polynomials are our own minimax fits (tools/fit_polynomials.py), rounded to float32; the reductions are
the identities named in each function.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cpu.math.logarithms import log, log1p
from tilec.backends.cpu.math.special import sqrt
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

#: atan(x) = x + x^3 Q(x^2) on [-1, 1]; relative error 2^-31.
_ATAN = (
    -0.333333274, 0.199996926, -0.142801311, 0.11060247, -0.088188571, 0.0675959186, -0.0449467213,
    0.0227605738, -0.00742274668, 0.0011349,
)  # fmt: skip
#: asin(x) = x + x^3 Q(x^2) on [-1/2, 1/2]; relative error 2^-27.
_ASIN = (0.166667539, 0.0749524194, 0.0454770814, 0.0241476743, 0.0422184588)
#: From here on x^2 swallows 1, so that asinh(x) = acosh(x) = log(2 x) to the last bit.
_LARGE = 2.0**30


def atan(v: Vectors, x: Expr) -> Expr:
    """Error below 3 ULP; beyond 1 through atan(x) = pi/2 - atan(1/x)."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    one = v.const(1.0)
    inner = v.bind(v.select(magnitude > one, one / magnitude, magnitude), "inner")
    near = v.bind(_odd(v, inner, _ATAN), "near")
    value = v.select(magnitude > one, v.const(math.pi / 2) - near, near)
    return v.with_sign(value, v.sign_bit(x))


def atan2(v: Vectors, y: Expr, x: Expr) -> Expr:
    """The angle of (x, y), signs of zeros and infinities as in C. Error below 4 ULP."""
    y, x = v.bind(y, "y"), v.bind(x, "x")
    high, wide = v.bind(v.abs(y), "high"), v.bind(v.abs(x), "wide")
    small = v.bind(v.select(high > wide, wide, high), "small")
    large = v.bind(v.select(high > wide, high, wide), "large")
    ratio = v.select(v.equal(high + wide, v.const(0.0)), v.const(0.0), small / large)
    infinity = v.const(math.inf)
    diagonal = v.logical_and(v.equal(high, infinity), v.equal(wide, infinity))
    ratio = v.select(diagonal, v.const(1.0), ratio)
    near = v.bind(_odd(v, v.bind(ratio, "ratio"), _ATAN), "near")
    first = v.bind(v.select(high > wide, v.const(math.pi / 2) - near, near), "first")
    left = v.bits(x) < v.const(0, "int32")
    return v.with_sign(v.select(left, v.const(math.pi) - first, first), v.sign_bit(y))


def asin(v: Vectors, x: Expr) -> Expr:
    """Error below 3 ULP, NaN outside [-1, 1]; beyond 1/2 asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    near = _asin_part(v, magnitude)
    value = v.select(magnitude > v.const(0.5), v.const(math.pi / 2) - v.const(2.0) * near, near)
    return v.with_sign(value, v.sign_bit(x))


def acos(v: Vectors, x: Expr) -> Expr:
    """Error below 3 ULP, NaN outside [-1, 1]; as `asin`, so that it keeps its digits near 1."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    near = _asin_part(v, magnitude)
    outer = v.bind(v.const(2.0) * near, "outer")
    outer = v.select(x < v.const(0.0), v.const(math.pi) - outer, outer)
    inner = v.const(math.pi / 2) - v.with_sign(near, v.sign_bit(x))
    return v.select(magnitude > v.const(0.5), outer, inner)


def asinh(v: Vectors, x: Expr) -> Expr:
    """log(x + sqrt(x^2 + 1)) = log1p(x + x^2 / (1 + sqrt(1 + x^2))). Error below 4 ULP."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    square = v.bind(magnitude * magnitude, "square")
    one = v.const(1.0)
    near = log1p(v, magnitude + square / (one + sqrt(v, one + square)))
    far = log(v, magnitude) + v.const(math.log(2))
    return v.with_sign(v.select(magnitude < v.const(_LARGE), near, far), v.sign_bit(x))


def acosh(v: Vectors, x: Expr) -> Expr:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1. Error below 4 ULP; NaN below 1."""
    x = v.bind(x, "x")
    one = v.const(1.0)
    t = v.bind(v.from_bits(v.bits(x - one)), "t")  # TVM would give it a range where x < 1, and another one
    near = log1p(v, t + sqrt(v, v.const(2.0) * t + t * t))
    far = log(v, x) + v.const(math.log(2))
    value = v.select(x < v.const(_LARGE), near, far)
    return v.select(x < one, v.const(math.nan), value)


def atanh(v: Vectors, x: Expr) -> Expr:
    """log1p(2 x / (1 - x)) / 2. Error below 4 ULP; infinite at +-1, NaN beyond."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    twice = v.const(2.0) * magnitude
    value = v.const(0.5) * log1p(v, twice / (v.const(1.0) - magnitude))
    return v.with_sign(value, v.sign_bit(x))


def _asin_part(v: Vectors, magnitude: Expr) -> Expr:
    """asin of ``magnitude`` up to 1/2, of sqrt((1 - magnitude) / 2) beyond."""
    outside = magnitude > v.const(0.5)
    half = v.const(0.5) * (v.const(1.0) - magnitude)
    square = v.bind(v.select(outside, half, magnitude * magnitude), "square")
    root = v.bind(v.select(outside, sqrt(v, square), magnitude), "root")
    return v.bind(root + root * (square * v.polynomial(square, _ASIN)), "near")


def _odd(v: Vectors, x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """x + x^3 Q(x^2)."""
    square = v.bind(x * x, "square")
    return x + x * (square * v.polynomial(square, coefficients))
