"""``tilec.intrinsics``: products by hand on tensor cores, and where lanes hold what they multiply."""

from __future__ import annotations

from tilec.packages import find_aliases, names_of_others

from ..layout import SwizzleMode, get_swizzle_layout, make_mma_swizzle_layout
from .mma_macro_generator import TensorCoreIntrinEmitter
from .utils import get_ldmatrix_offset, get_mma_micro_size, mma_store_index_map

#: Emitters for other instructions, and those of other vendors.
find_aliases(__name__)
__getattr__ = names_of_others(__name__)

__all__ = [
    "SwizzleMode",
    "TensorCoreIntrinEmitter",
    "get_ldmatrix_offset",
    "get_mma_micro_size",
    "get_swizzle_layout",
    "make_mma_swizzle_layout",
    "mma_store_index_map",
]
