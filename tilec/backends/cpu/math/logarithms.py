"""log, log2, log10 and log1p of float32 vectors.

The coefficients are our own minimax fit (tools/fit_polynomials.py), rounded to float32. x = 2^e m with m in
[sqrt(1/2), sqrt(2)), found by integer arithmetic on the bits (denormal numbers are scaled up first); with
f = m - 1, exact, log(m) = f - f^2/2 + f^3 Q(f).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

#: log(1 + f) = f - f^2/2 + f^3 Q(f) on [sqrt(1/2) - 1, sqrt(2) - 1]; relative error 2^-27.
_LOG = (
    0.333333167, -0.250008104, 0.200022863, -0.166245532, 0.141811909, -0.131287612, 0.128816552,
    -0.0785960333,
)  # fmt: skip
#: log 2 and log10(2) in two parts: the first has few enough bits that its product with e is exact.
_LN2 = (0.693145751953125, 1.42860682e-6)
_LOG10_2 = (0.301025390625, 4.60503898e-6)
_LOG2_E = (1.4423828125, 3.12228388e-4)
_LOG10_E = (0.434326171875, -3.16899717e-5)
_SMALLEST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3


def log(v: Vectors, x: Expr) -> Expr:
    """Natural logarithm. Error below 1.5 ULP; log(0) = -inf, log(x < 0) = NaN, log(inf) = inf."""
    x = v.bind(x, "x")
    e, f = _decompose(v, x)
    square = v.bind(f * f, "square")
    tail = v.bind(square * f * v.polynomial(f, _LOG) + e * v.const(_LN2[1]), "tail")
    value = f + (tail - v.const(0.5) * square) + e * v.const(_LN2[0])
    return _edges(v, x, value)


def log2(v: Vectors, x: Expr) -> Expr:
    """Base 2. Error below 2 ULP; exact at powers of two."""
    x = v.bind(x, "x")
    e, f = _decompose(v, x)
    return _edges(v, x, _times_constant(v, f, _LOG2_E) + e)


def log10(v: Vectors, x: Expr) -> Expr:
    """Base 10. Error below 2 ULP."""
    x = v.bind(x, "x")
    e, f = _decompose(v, x)
    value = (_times_constant(v, f, _LOG10_E) + e * v.const(_LOG10_2[1])) + e * v.const(_LOG10_2[0])
    return _edges(v, x, value)


def log1p(v: Vectors, x: Expr) -> Expr:
    """log(1 + x). Error below 3 ULP; with u = 1 + x rounded, log(u) x / (u - 1) cancels the rounding of u
    (W. Kahan). log1p(-1) = -inf, log1p(x < -1) = NaN."""
    x = v.bind(x, "x")
    one = v.const(1.0)
    u = v.bind(one + x, "u")
    scaled = log(v, u) * (x / (u - one))
    finite = v.select(u < v.const(math.inf), scaled, u)
    return v.select(v.equal(u, one), x, finite)


def _decompose(v: Vectors, x: Expr) -> tuple[Expr, Expr]:
    """e as float32 and f = m - 1. Meaningless for x <= 0, infinity and NaN, which `_edges` replaces."""
    tiny = x < v.const(_SMALLEST_NORMAL)
    normal = v.select(tiny, x * v.const(2.0**24), x)
    offset = v.const(_SQRT_HALF_BITS, "int32")
    shifted = v.bind(v.bits(normal) - offset, "shifted")
    exponent = v.bind(shifted >> v.const(23, "int32"), "exponent")
    mantissa = v.from_bits((shifted & v.const(0x7FFFFF, "int32")) + offset)
    e = v.cast(exponent, "float32") - v.select(tiny, v.const(24.0), v.const(0.0))
    return v.bind(e, "e"), v.bind(mantissa - v.const(1.0), "f")


def _times_constant(v: Vectors, f: Expr, constant: tuple[float, float]) -> Expr:
    """log(1 + f) times a constant in two parts. The head of the logarithm is cut to 12 bits, so that its
    product with the head of the constant is exact."""
    square = v.bind(v.const(0.5) * f * f, "square")
    head = v.bind(v.from_bits(v.bits(f - square) & v.const(-0x1000, "int32")), "head")
    tail = v.bind((f - head) - square + f * f * f * v.polynomial(f, _LOG), "tail")
    return head * v.const(constant[0]) + (
        tail * v.const(constant[0]) + (head * v.const(constant[1]) + tail * v.const(constant[1]))
    )


def _edges(v: Vectors, x: Expr, value: Expr) -> Expr:
    """``value`` where x is positive and finite; -inf at 0, NaN below, x itself at infinity and NaN."""
    below = v.select(v.equal(x, v.const(0.0)), v.const(-math.inf), v.const(math.nan))
    ordinary = v.select(x > v.const(0.0), value, below)
    return v.select(x < v.const(math.inf), ordinary, x)
