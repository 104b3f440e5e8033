"""sin, cos and tan of float32 vectors.

The argument is reduced in float64: x = q pi/2 + r with |r| <= pi/4, pi/2 in three parts of which the first
two have 25 bits, so that their products with q are exact up to q = 2^28.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.lowering.math.sine import COSINE, SINE
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

_HALF_PI = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)
_ROUND = 6755399441055744.0
_LIMIT = 2.0**50


def sin(v: Vectors, x: Expr) -> Expr:
    """Error below 2 ULP for |x| < 4e8; beyond that it grows on machines without fused multiply-add, and
    from 2^50 on, as at the infinities, the result is NaN."""
    x = v.bind(x, "x")
    quadrant, r = _reduce(v, x)
    return _wave(v, quadrant, r)


def cos(v: Vectors, x: Expr) -> Expr:
    """As `sin`."""
    quadrant, r = _reduce(v, v.bind(x, "x"))
    return _wave(v, v.bind(quadrant + v.const(1, "int32"), "quadrant"), r)


def tan(v: Vectors, x: Expr) -> Expr:
    """Error below 4 ULP for |x| < 4e8; as `sin` beyond."""
    quadrant, r = _reduce(v, v.bind(x, "x"))
    sine, cosine = v.bind(_sine(v, r), "sine"), v.bind(_cosine(v, r), "cosine")
    even = v.equal(quadrant & v.const(1, "int32"), v.const(0, "int32"))
    return v.select(even, sine / cosine, v.const(0.0) - cosine / sine)


def _wave(v: Vectors, quadrant: Expr, r: Expr) -> Expr:
    """sin(quadrant pi/2 + r)."""
    even = v.equal(quadrant & v.const(1, "int32"), v.const(0, "int32"))
    value = v.bind(v.select(even, _sine(v, r), _cosine(v, r)), "value")
    return v.from_bits(v.bits(value) ^ ((quadrant & v.const(2, "int32")) << v.const(30, "int32")))


def _reduce(v: Vectors, x: Expr) -> tuple[Expr, Expr]:
    """The quadrant (its low bits count) and r; r is NaN where x is out of range."""
    usable = v.select(v.abs(x) < v.const(_LIMIT), x, v.const(math.nan))
    wide = v.bind(v.cast(usable, "float64"), "wide")
    shifted = v.bind(wide * v.const(2 / math.pi, "float64") + v.const(_ROUND, "float64"), "shifted")
    turns = v.bind(shifted - v.const(_ROUND, "float64"), "turns")
    r = wide
    for part in _HALF_PI:
        r = r - turns * v.const(part, "float64")
    quadrant = v.cast(v.reinterpret(shifted, "int64"), "int32")
    return v.bind(quadrant, "quadrant"), v.bind(v.cast(r, "float32"), "r")


def _sine(v: Vectors, r: Expr) -> Expr:
    """With the sign of r, of which the sum leaves -0 without."""
    square = v.bind(r * r, "square")
    return v.with_sign(r + r * (square * v.polynomial(square, SINE)), v.sign_bit(r))


def _cosine(v: Vectors, r: Expr) -> Expr:
    square = v.bind(r * r, "square")
    return v.const(1.0) - (v.const(0.5) * square - square * square * v.polynomial(square, COSINE))
