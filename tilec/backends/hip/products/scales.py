"""Which products with scales the matrix instruction for small floats carries out (AMD's instruction set
architecture document of CDNA4, "V_MFMA_SCALE_F32_16X16X128_F8F6F4")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import is_slice
from tilec.backends.hip.chips import chip_of
from tilec.backends.hip.products.instructions import has_scales
from tilec.ir.exprs import int_value
from tilec.ir.roads import Loss
from tilec.ir.small_floats import number_type, numbers_of, scale_type

if TYPE_CHECKING:
    from tilec.ir.nodes import ScaledGemm
    from tilec.targets import Target

#: Numbers along K of an instruction, and neighbours that share one of its scales, of this type.
SCALED_DEPTH, GROUP, _SCALE = 128, 32, "float8_e8m0fnu"
_FIT = (
    f"multiply 8-bit floats, or float4_e2m1fn stored along K, with {_SCALE} for each {GROUP}, K a multiple of"
    f" {SCALED_DEPTH}, by whole waves"
)


def depth_of(gemm: ScaledGemm) -> int:
    """Numbers along K of the tiles of a product."""
    held = int_value(gemm.a.extent[-2 if gemm.trans_a else -1]) or 0
    return held if gemm.trans_a else held * numbers_of(gemm.a)


def scaled_loss(gemm: ScaledGemm, target: Target, threads: int) -> Loss | str | None:
    """Why no matrix instruction with scales carries a product out: a text where the target has none."""
    if not has_scales(target):
        return f"{target.name} has no matrix instruction with scales"
    why = _obstacle(gemm, chip_of(target).lanes, threads)
    return None if why is None else Loss("", f"no matrix instruction with scales: {why}", _FIT)


def _obstacle(gemm: ScaledGemm, lanes: int, threads: int) -> str | None:
    depth, scales = depth_of(gemm), {scale_type(gemm.sfa), scale_type(gemm.sfb)}
    turned = ((gemm.a, gemm.trans_a), (gemm.b, not gemm.trans_b))
    if scales != {_SCALE} or gemm.group != GROUP:
        return f"its scales are {_SCALE} for each {GROUP}, not {scale_type(gemm.sfa)} for each {gemm.group}"
    if packed := next((each for each, is_across in turned if is_across and numbers_of(each) > 1), None):
        return f"it takes {number_type(packed)} stored along K alone"
    if depth % SCALED_DEPTH:
        return f"K = {depth} is no multiple of {SCALED_DEPTH}"
    if threads % lanes:
        return f"{threads} threads are no whole waves of {lanes}"
    if not is_slice(gemm.c) and gemm.c.buffer.scope() == "local.fragment":
        return "its result is no equal slice of a fragment"
    return None
