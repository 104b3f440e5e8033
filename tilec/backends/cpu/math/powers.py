"""pow, hypot and ldexp of float32 vectors, computed in float64 and rounded once.

The coefficients are our own minimax fits in float64 (tools/fit_polynomials.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

#: log2(m) = s Q(s^2), s = (m - 1) / (m + 1), on [sqrt(1/2), sqrt(2)]; relative error 2^-50.
_LOG2 = (
    2.8853900817779273, 0.96179669392431847, 0.57707801725270916, 0.41219840112289549, 0.32061644878697241,
    0.26144241712203914, 0.24293683932224987,
)  # fmt: skip
#: 2^r on [-1/2, 1/2]; relative error 2^-40.
_EXP2 = (
    1.0000000000000269, 0.69314718054593032, 0.24022650695467716, 0.055504109412153977, 0.0096181292284841123,
    0.0013333450560378416, 0.00015403411637501183, 1.5310081171597388e-5, 1.3264067869749097e-6,
)  # fmt: skip
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_ROUND = 6755399441055744.0 + 1023.0
#: 2^-300 times the largest float32 is 0 in float32, 2^300 times the smallest is infinite.
_LDEXP_LIMIT = 300


def pow(v: Vectors, x: Expr, y: Expr) -> Expr:
    """x^y. Error below 0.51 ULP; zeros, infinities, NaN and negative x as in C's pow."""
    x, y = v.bind(x, "x"), v.bind(y, "y")
    magnitude = v.bind(v.abs(x), "magnitude")
    size = v.bind(v.cast(_exp2(v, v.cast(y, "float64") * _log2(v, magnitude)), "float32"), "size")
    one, infinity = v.const(1.0), v.const(math.inf)
    whole = v.equal(_floor(v, y), y)
    half = v.const(0.5) * y
    odd = v.logical_and(whole, v.differ(_floor(v, half), half))
    signed = v.select(odd, v.with_sign(size, v.sign_bit(x)), size)
    negative = v.logical_and(x < v.const(0.0), magnitude < infinity)
    value = v.select(v.logical_and(negative, v.differ(_floor(v, y), y)), v.const(math.nan), signed)
    still = v.logical_and(v.equal(magnitude, one), v.equal(v.abs(y), infinity))
    trivial = v.logical_or(v.equal(y, v.const(0.0)), v.logical_or(v.equal(x, one), still))
    return v.select(trivial, one, value)


def hypot(v: Vectors, x: Expr, y: Expr) -> Expr:
    """sqrt(x^2 + y^2) without overflow in between. Error below 0.51 ULP; infinite if either side is."""
    x, y = v.bind(x, "x"), v.bind(y, "y")
    wide, high = v.bind(v.cast(x, "float64"), "wide"), v.bind(v.cast(y, "float64"), "high")
    root = tirx.call_llvm_pure_intrin(v.dtype("float64"), "llvm.sqrt", wide * wide + high * high)
    infinity = v.const(math.inf)
    endless = v.logical_or(v.equal(v.abs(x), infinity), v.equal(v.abs(y), infinity))
    return v.select(endless, infinity, v.cast(root, "float32"))


def ldexp(v: Vectors, x: Expr, n: Expr) -> Expr:
    """x 2^n for an integer n, correctly rounded where the result is a denormal number."""
    n = v.cast(n, "int32")
    limit = v.const(_LDEXP_LIMIT, "int32")
    n = tirx.Min(tirx.Max(n, v.const(-_LDEXP_LIMIT, "int32")), limit)
    biased = v.cast(n + v.const(1023, "int32"), "int64")
    scale = v.reinterpret(biased << v.const(52, "int64"), "float64")
    return v.cast(v.cast(x, "float64") * scale, "float32")


def _log2(v: Vectors, x: Expr) -> Expr:
    """log2 of x >= 0 as float64."""
    offset = v.const(_SQRT_HALF_BITS, "int64")
    shifted = v.bind(v.reinterpret(v.cast(x, "float64"), "int64") - offset, "shifted")
    exponent = v.cast(shifted >> v.const(32, "int64"), "int32") >> v.const(20, "int32")
    bits = (shifted & v.const((1 << 52) - 1, "int64")) + offset
    m = v.bind(v.reinterpret(bits, "float64"), "m")
    one = v.const(1.0, "float64")
    s = v.bind((m - one) / (m + one), "s")
    square = v.bind(s * s, "square")
    value = v.cast(exponent, "float64") + s * v.polynomial(square, _LOG2, "float64")
    infinite = v.select(x < v.const(math.inf), value, v.cast(x, "float64"))
    return v.select(v.equal(x, v.const(0.0)), v.const(-math.inf, "float64"), infinite)


def _exp2(v: Vectors, t: Expr) -> Expr:
    """2^t as float64, for t clamped to what float32 can tell apart."""
    t = v.clamp(t, -160.0, 160.0, "float64")
    shifted = v.bind(t + v.const(_ROUND, "float64"), "shifted")
    r = v.bind(t + (v.const(_ROUND, "float64") - shifted), "r")
    scale = v.reinterpret(v.reinterpret(shifted, "int64") << v.const(52, "int64"), "float64")
    return v.polynomial(r, _EXP2, "float64") * scale


def _floor(v: Vectors, x: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin(v.dtype("float32"), "llvm.floor", x)
