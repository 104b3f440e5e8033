"""erf, sqrt, rsqrt, copysign and round of float32 vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cpu.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

#: erf(x) = x P(x^2) / Q(x^2) on [0, 3.92], where erf has rounded to 1; relative error 2^-29. Our own fit
#: (tools/fit_polynomials.py), rounded to float32.
ERF_P = (
    1.12837917, 0.185136217, 0.0542440071, 0.00383864735, 0.000376755323, 4.60911591e-06, -1.27992582e-08,
)  # fmt: skip
ERF_Q = (1.0, 0.497406106, 0.113874056, 0.0154300851, 0.00130152501, 6.23980573e-05)
ERF_LIMIT = 3.92


def erf(v: Vectors, x: Expr) -> Expr:
    """Error below 6 ULP (3.5e-7 near 1, 3 ULP for |x| < 1); odd, in [-1, 1], +-1 beyond +-3.92."""
    x = v.clamp(x, -ERF_LIMIT, ERF_LIMIT)
    square = v.bind(x * x, "square")
    return v.clamp(x * v.polynomial(square, ERF_P) / v.polynomial(square, ERF_Q), -1.0, 1.0)


def sqrt(v: Vectors, x: Expr) -> Expr:
    """Correctly rounded: the hardware's instruction."""
    from tvm import tirx

    return tirx.call_llvm_pure_intrin(v.dtype("float32"), "llvm.sqrt", x)


def rsqrt(v: Vectors, x: Expr) -> Expr:
    """1 / sqrt(x), each step correctly rounded: error below 1.5 ULP. rsqrt(0) = inf, rsqrt(x < 0) = NaN."""
    return v.const(1.0) / sqrt(v, x)


def copysign(v: Vectors, x: Expr, y: Expr) -> Expr:
    """|x| with the sign of y, NaN included."""
    return v.with_sign(v.abs(x), v.sign_bit(y))


def round(v: Vectors, x: Expr) -> Expr:
    """To the nearest integer, ties away from zero."""
    from tvm import tirx

    return tirx.call_llvm_pure_intrin(v.dtype("float32"), "llvm.round", x)
