"""``tilec.intrinsics.utils``: sizes and places of the tiles of mma.sync."""

from __future__ import annotations

from typing import Any

from tilec.language.values.kernel.places import unsupported
from tilec.language.values.scalars import dtype as make_dtype
from tilec.packages import names_of_others

from .mma_layout import (
    ldmatrix_32x8_to_shared_16x16_layout,
    ldmatrix_32x16_to_shared_16x32_layout_a,
    ldmatrix_32x16_to_shared_16x32_layout_b,
    ldmatrix_trans_32x8_to_shared_16x16_layout,
    mma_store_32x8_to_shared_16x16_layout,
)


def get_mma_micro_size(dtype: Any) -> tuple[int, int, int]:
    """Rows, columns and K of a tile: 16, 16 and 32 bytes."""
    return 16, 16, 256 // make_dtype(dtype).bits


def get_ldmatrix_offset(
    matrix: str, row_idx: Any, col_idx: Any, stride: Any, dtype: Any = "float16", transposed: bool = False
) -> Any:
    """How many elements behind its tile the row starts that lane ``row_idx`` names for ldmatrix; rows of the
    shared tile have ``stride`` elements. ``transposed``: of A that it is stored (K, M), of B (N, K)."""
    bits = make_dtype(dtype).bits
    if bits == 8:
        layouts = {"A": ldmatrix_32x16_to_shared_16x32_layout_a, "B": ldmatrix_32x16_to_shared_16x32_layout_b}
        layout = layouts[matrix]
        if transposed != (matrix == "B"):
            raise unsupported("ldmatrix of 8-bit elements that are turned round", remedy="store them along K")
    else:
        straight, turned = ldmatrix_32x8_to_shared_16x16_layout, ldmatrix_trans_32x8_to_shared_16x16_layout
        layout = turned if transposed else straight
    row, column = layout(row_idx, col_idx)
    return row * stride + column


#: Row and column of a lane's sums of a 16 x 16 tile.
mma_store_index_map = mma_store_32x8_to_shared_16x16_layout


#: Emitters and layouts of other instructions.
__getattr__ = names_of_others(__name__)

__all__ = ["get_ldmatrix_offset", "get_mma_micro_size", "mma_store_index_map"]
