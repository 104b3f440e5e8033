"""erf, sqrt, rsqrt, copysign and round of float32 vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.math.pieces import ERF, has_pieces, piecewise_odd
from tilec.lowering.math.erf import ERF_LIMIT, ERF_P, ERF_Q
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr


def erf(v: Vectors, x: Expr) -> Expr:
    """Error below 6 ULP (3.5e-7 near 1, 3 ULP for |x| < 1); odd, in [-1, 1], +-1 beyond +-3.92. By pieces
    below 3 ULP."""
    if has_pieces(v):
        return piecewise_odd(v, x, ERF)
    x = v.clamp(x, -ERF_LIMIT, ERF_LIMIT)
    square = v.bind(x * x, "square")
    return v.clamp(x * v.polynomial(square, ERF_P) / v.polynomial(square, ERF_Q), -1.0, 1.0)


def sqrt(v: Vectors, x: Expr) -> Expr:
    """Correctly rounded: the hardware's instruction."""
    return tirx.call_llvm_pure_intrin(v.dtype("float32"), "llvm.sqrt", x)


def rsqrt(v: Vectors, x: Expr) -> Expr:
    """1 / sqrt(x), each step correctly rounded: error below 1.5 ULP. rsqrt(0) = inf, rsqrt(x < 0) = NaN."""
    return v.const(1.0) / sqrt(v, x)


def copysign(v: Vectors, x: Expr, y: Expr) -> Expr:
    """|x| with the sign of y, NaN included."""
    return v.with_sign(v.abs(x), v.sign_bit(y))


def round(v: Vectors, x: Expr) -> Expr:
    """To the nearest integer, ties away from zero."""
    return tirx.call_llvm_pure_intrin(v.dtype("float32"), "llvm.round", x)
