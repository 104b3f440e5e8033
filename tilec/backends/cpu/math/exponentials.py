"""exp, exp2, exp10, sigmoid, tanh, sinh and cosh of float32 vectors.

Coefficients are our own minimax fits (tools/fit_polynomials.py), rounded to float32.

All exponentials share one scheme: with k = round(x / (2 log 2)) and t = x - 2 k log 2 in [-log 2, log 2],
exp(x) = exp(t) 2^k 2^k. exp(t) 2^k is always a normal number, so the last product overflows to infinity and
underflows through the denormal numbers by itself. k is rounded by adding 1.5 * 2^23 + 127, which leaves
k + 127, an exponent field, in the low bits of the sum.

Arguments far below all results are clamped to where k is -127, whose exponent field is that of zero: a mask's
-inf then gives 0 without an underflow, which takes some processors more than 100 cycles.

AVX-512 multiplies by a power of two in one instruction, which overflows and underflows by itself: exp is then
exp(t) 2^k with k = round(x / log 2), whose t is half as long and takes a coefficient less.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cpu.math.scaling import fraction, has_scaling, scaled
from tilec.lowering.math.vectors import Vectors

if TYPE_CHECKING:
    from tvm.ir import Expr

_ROUND = 12582912.0 + 127.0
#: exp(t) on [-log 2, log 2]; relative error 2^-26.
_EXP = (1.0, 1.0, 0.500000399, 0.166666241, 0.0416607879, 0.00833525133, 0.00141133614, 0.00019763783)
#: exp(t) on [-log 2 / 2, 0.355]; relative error 2^-28.1.
_EXP_HALF = (1.0, 1.0, 0.499999949, 0.166665119, 0.0416677197, 0.0083697564, 0.00138706623)
#: 2^t on [-1, 1]; relative error 2^-26.4.
_EXP2 = (
    1.0, 0.693147217, 0.240226729, 0.0555037951, 0.00961671998, 0.00133394903, 0.000156536649, 1.50306085e-5,
)  # fmt: skip
#: 2^t on [0, 1]; relative error 2^-28.9.
_EXP2_FRACTION = (
    1.0, 0.693147044, 0.240229306, 0.0554852808, 0.00967545135, 0.00124678478, 0.000216129127,
)  # fmt: skip
#: log 2, 2 log 2 and log10(4) in two parts: the first has few enough bits that its product with k is exact.
_LN2 = (0.693145751953125, 1.42860682e-6)
_TWO_LN2 = (1.38629150390625, 2.85721364e-6)
_LOG10_4 = (0.60205078125, 9.21007796e-6)
#: tanh(x) = x P(x^2) / Q(x^2) on [0, 9.02], where tanh has rounded to 1; relative error 2^-29.5.
_TANH_P = (1.0, 0.13679922, 0.00386833625, 2.80076179e-05, 3.05853559e-08, -1.22036699e-11)
_TANH_Q = (1.0, 0.470132541, 0.0272458705, 0.000393864566, 1.28737705e-06)
_TANH_LIMIT = 9.02
#: sinh(x) = x + x^3 Q(x^2) on [-1, 1]; relative error 2^-25.
_SINH = (0.166667182, 0.00833021143, 0.000203774055)


def exp(v: Vectors, x: Expr) -> Expr:
    """e^x. Error below 1.5 ULP; exp(-inf) = 0, exp(inf) = inf, NaN stays NaN."""
    if has_scaling(v):
        return _scaled_exp(v, x)
    part, scale = _split_exp(v, x)
    return part * scale


def exp2(v: Vectors, x: Expr) -> Expr:
    """2^x. Error below 1.5 ULP; exact at integers."""
    if has_scaling(v):
        x = v.bind(x, "x")
        power = scaled(v, v.polynomial(v.bind(fraction(v, x), "t"), _EXP2_FRACTION), x)
        return v.select(x <= v.const(-150.0), v.const(0.0), power)
    x = v.clamp(x, -254.0, 129.0)
    shifted = v.bind(x * v.const(0.5) + v.const(_ROUND), "shifted")
    t = v.bind(x - v.const(2.0) * (shifted - v.const(_ROUND)), "t")
    scale = _power_of_two(v, shifted)
    return v.polynomial(t, _EXP2) * scale * scale


def exp10(v: Vectors, x: Expr) -> Expr:
    """10^x. Error below 2.5 ULP."""
    x = v.clamp(x, -76.4, 39.0)
    shifted = v.bind(x * v.const(0.5 / math.log10(2)) + v.const(_ROUND), "shifted")
    t = v.bind(_reduce(v, x, shifted, _LOG10_4) * v.const(math.log(10)), "t")
    scale = _power_of_two(v, shifted)
    return v.polynomial(t, _EXP) * scale * scale


def sigmoid(v: Vectors, x: Expr) -> Expr:
    """1 / (1 + e^-x). Error below 3.5 ULP where the result is normal; 0 and 1 at the infinities."""
    return v.const(1.0) / (v.const(1.0) + exp(v, v.const(0.0) - x))


def tanh(v: Vectors, x: Expr) -> Expr:
    """Error below 6 ULP (3.5e-7 near 1, 3 ULP for |x| < 1); odd, in [-1, 1], +-1 beyond +-9.02."""
    x = v.clamp(x, -_TANH_LIMIT, _TANH_LIMIT)
    square = v.bind(x * x, "square")
    return v.clamp(x * v.polynomial(square, _TANH_P) / v.polynomial(square, _TANH_Q), -1.0, 1.0)


def sinh(v: Vectors, x: Expr) -> Expr:
    """Error below 3 ULP."""
    x = v.bind(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    square = v.bind(magnitude * magnitude, "square")
    part, scale = _split_exp(v, magnitude)
    large = (v.const(0.5) * part) * scale - v.const(0.5) / (part * scale)
    small = magnitude + magnitude * (square * v.polynomial(square, _SINH))
    return v.with_sign(v.select(magnitude < v.const(1.0), small, large), v.sign_bit(x))


def cosh(v: Vectors, x: Expr) -> Expr:
    """Error below 3 ULP."""
    part, scale = _split_exp(v, v.abs(v.bind(x, "x")))
    return (v.const(0.5) * part) * scale + v.const(0.5) / (part * scale)


def _scaled_exp(v: Vectors, x: Expr) -> Expr:
    """exp(x) by one product with 2^k, masked where that is 0; x has a limit up to which k is exact."""
    x = v.bind(v.at_most(x, 200.0), "x")
    k = v.bind(x * v.const(1 / math.log(2)) + v.const(_ROUND) - v.const(_ROUND), "k")
    t = v.bind((x - k * v.const(_LN2[0])) - k * v.const(_LN2[1]), "t")
    power = scaled(v, v.polynomial(t, _EXP_HALF), k)
    return v.select(x <= v.const(-104.0), v.const(0.0), power)


def _split_exp(v: Vectors, x: Expr) -> tuple[Expr, Expr]:
    """exp(t) 2^k and 2^k, whose product is exp(x); x is clamped to a little more than where that is neither
    0 nor infinity."""
    x = v.clamp(x, -176.0, 89.5)
    shifted = v.bind(x * v.const(0.5 / math.log(2)) + v.const(_ROUND), "shifted")
    t = v.bind(_reduce(v, x, shifted, _TWO_LN2), "t")
    scale = _power_of_two(v, shifted)
    return v.bind(v.polynomial(t, _EXP) * scale, "part"), scale


def _reduce(v: Vectors, x: Expr, shifted: Expr, step: tuple[float, float]) -> Expr:
    """x - k step, the step in two parts (W. Cody, W. Waite, 1980)."""
    k = v.bind(shifted - v.const(_ROUND), "k")
    return (x - k * v.const(step[0])) - k * v.const(step[1])


def _power_of_two(v: Vectors, shifted: Expr) -> Expr:
    """2^k from k + 127 in the low bits of ``shifted``. Meaningless for NaN, which the mantissa carries."""
    return v.bind(v.from_bits(v.bits(shifted) << v.const(23, "int32")), "scale")
