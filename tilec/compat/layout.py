"""Layout objects and builders for `T.annotate_layout`, under the names that kernels import them by."""

from __future__ import annotations

from tilec.language.tiles.layout_builders import (
    SwizzleMode,
    get_swizzle_layout,
    make_cutlass_metadata_layout,
    make_full_bank_swizzled_layout,
    make_fully_replicated_layout_fragment,
    make_gemm_fragment_8x8,
    make_gemm_fragment_8x8_transposed,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_mma_swizzle_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_tcgen05mma_swizzled_layout,
    make_volta_swizzled_layout,
    make_wgmma_swizzled_layout,
)
from tilec.language.values.layouts.layout import Fragment, Layout
from tilec.packages import find_aliases

find_aliases(__name__)

__all__ = [
    "Fragment",
    "Layout",
    "SwizzleMode",
    "get_swizzle_layout",
    "make_cutlass_metadata_layout",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_mma_swizzle_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
]
