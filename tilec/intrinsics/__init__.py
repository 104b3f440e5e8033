"""``tilec.intrinsics``: products by hand on tensor cores, and where lanes hold what they multiply."""

from __future__ import annotations

from tilec.intrinsics.mma_macro_generator import TensorCoreIntrinEmitter
from tilec.intrinsics.utils import get_ldmatrix_offset, get_mma_micro_size, mma_store_index_map
from tilec.layout import SwizzleMode, get_swizzle_layout, make_mma_swizzle_layout
from tilec.unoffered import PACKAGES, names_of

#: Emitters for other instructions, and those of other vendors.
__getattr__ = names_of(__name__, PACKAGES["intrinsics"])

__all__ = [
    "SwizzleMode",
    "TensorCoreIntrinEmitter",
    "get_ldmatrix_offset",
    "get_mma_micro_size",
    "get_swizzle_layout",
    "make_mma_swizzle_layout",
    "mma_store_index_map",
]
