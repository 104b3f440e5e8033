"""Smooth functions of float32 by pieces: AVX-512 looks the coefficients of 16 polynomials up, one instruction
for each degree (`vpermps`), where a quotient of two polynomials takes ten cycles and more for the quotient.

The whole part of `rate` |x| names the piece. Its distance from the middle of that, a half at most, is what
the piece is a polynomial in. What lies beyond the last piece takes its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.lowering.math.vectors import with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.math.vectors import Vectors

#: Pieces, which are the words of a register.
_COUNT = 16
_LOOK_UP = "llvm.x86.avx512.permvar.sf.512"
#: Added to a small number it leaves the nearest integer in the low bits, which are what `vpermps` reads.
_ROUND = 12582912.0


@dataclass(frozen=True)
class Pieces:
    """Q on [0, 16 / ``rate``]: ``coefficients``[k][i] is that of degree k in piece i."""

    rate: float
    coefficients: tuple[tuple[float, ...], ...]


#: erf(x) = x Q(|x|); relative error 2^-23.6 (tools/fit_polynomials.py).
ERF = Pieces(4.08, (
    (
        1.12275576, 1.07953712, 1.00174234, 0.903354512, 0.798946979, 0.699833991, 0.612466465, 0.538923561,
        0.47845621, 0.429047818, 0.388465292, 0.354758783, 0.326395194, 0.302221353, 0.281379169,
        0.263225786,
    ),
    (
        -0.0223922144, -0.0625434227, -0.0906285573, -0.103649383, -0.103253393, -0.0939087144,
        -0.0805087263, -0.0667296741, -0.0545589593, -0.0446379623, -0.036853834, -0.0308137873,
        -0.0261040311, -0.0223852853, -0.0194051972, -0.0169822638,
    ),
    (
        -0.0219893996, -0.0175189264, -0.0103149798, -0.00286014741, 0.00286224724, 0.00606051583,
        0.0070296467, 0.00658729072, 0.00553527002, 0.00439913024, 0.00341978655, 0.00265543183,
        0.00208264041, 0.00165697777, 0.00133806791, 0.00109559339,
    ),
    (
        0.000794684162, 0.00206500921, 0.00256640778, 0.00226873806, 0.00149490214, 0.000660237843,
        4.28882267e-5, -0.000283547958, -0.000383223092, -0.000358955596, -0.000290674077, -0.000220760677,
        -0.000164153103, -0.000122308746, -9.22882094e-5, -7.07523676e-5,
    ),
    (
        0.000383285315, 0.000231964304, 1.7092666e-5, -0.000152211143, -0.000216981051, -0.000188507346,
        -0.000117043062, -4.88459349e-5, -5.21660928e-6, 1.41300312e-5, 1.83535233e-5, 1.604926e-5,
        1.22166249e-5, 8.82855889e-6, 6.31371494e-6, 4.55483535e-6,
    ),
))  # fmt: skip


def has_pieces(v: Vectors) -> bool:
    """Whether the target that code is made for looks them up for so many lanes. Fewer than 16 are the first
    of 16, so that elements that fill no vector get the same bits."""
    from tvm.target.codegen import target_has_features

    return v.lanes in (1, 4, 8, 16) and bool(target_has_features("avx512f"))


def piecewise_odd(v: Vectors, x: Expr, pieces: Pieces) -> Expr:
    """x Q(|x|), kept in [-1, 1]; NaN where x is. A multiply-add and a look-up for each degree."""
    x = v.name(x, "x")
    magnitude = v.bind(v.abs(x), "magnitude")
    scaled = magnitude * v.const(pieces.rate) - v.const(0.5)
    place = v.bind(v.at_most(scaled, _COUNT - 0.5 - 2**-20), "place")
    shifted = v.bind(place + v.const(_ROUND), "shifted")
    t = v.bind(place - (shifted - v.const(_ROUND)), "t")
    at = v.bind(_widened(v.bits(shifted), v.lanes), "at")
    value, *rest = (_looked_up(v, row, at) for row in reversed(pieces.coefficients))
    for coefficient in rest:
        value = value * t + coefficient
    return v.with_sign(v.at_most(magnitude * value, 1.0), v.sign_bit(x))


def _widened(at: Expr, lanes: int) -> Expr:
    """The lanes of ``at`` over and over, as many as there are pieces."""
    if lanes == 1:
        return tirx.Broadcast(at, _COUNT)
    return at if lanes == _COUNT else tirx.Shuffle([at] * (_COUNT // lanes), list(range(_COUNT)))


def _looked_up(v: Vectors, row: tuple[float, ...], at: Expr) -> Expr:
    """The coefficient of each lane's piece."""
    table = tirx.Shuffle([tirx.const(number, "float32") for number in row], list(range(_COUNT)))
    found = tirx.call_llvm_pure_intrin(with_lanes("float32", _COUNT), _LOOK_UP, table, at)
    return found if v.lanes == _COUNT else tirx.Shuffle([found], list(range(v.lanes)))
