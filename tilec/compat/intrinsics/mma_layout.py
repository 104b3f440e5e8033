"""Where lanes hold the elements of fragments, as index functions: of (lane, element of the lane) the place in
the tile, and the other way round (PTX ISA, "Matrix Fragments for mma").

They take numbers and expressions. Tiles of 16 x 16 are of 16-bit elements, 16 x 32 of 8-bit and 16 x 8 of
32-bit ones; B's are those of a column-major operand, (N, K).
"""

from __future__ import annotations

from typing import Any

from tilec.language.threads.fragment_instructions import index_of_sum
from tilec.language.tiles.layout_builders import get_swizzle_layout
from tilec.packages import names_of_others

Place = tuple[Any, Any]


def _of_a(lane: Any, local: Any, each: int) -> Place:
    """Registers of ``each`` elements: rows g and g + 8, first of the first 16 bytes of K, then of the
    second."""
    register = local // each
    return lane // 4 + 8 * (register % 2), register // 2 * (4 * each) + lane % 4 * each + local % each


def _of_b(lane: Any, local: Any, each: int) -> Place:
    """As `_of_a`, with both halves of K of row g before those of row g + 8."""
    register = local // each
    return lane // 4 + 8 * (register // 2), register % 2 * (4 * each) + lane % 4 * each + local % each


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> Place:
    """The row that a lane names for ldmatrix of a 16 x 16 tile of A, and the column of element
    ``local_id``."""
    return thread_id % 16, 8 * (thread_id // 16) + local_id % 8


def ldmatrix_trans_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> Place:
    """As `ldmatrix_32x8_to_shared_16x16_layout`, of a tile that ldmatrix turns round."""
    return 8 * (thread_id // 16) + thread_id % 8, 8 * (thread_id % 16 // 8) + local_id % 8


def ldmatrix_32x16_to_shared_16x32_layout_a(thread_id: Any, local_id: Any) -> Place:
    """As `ldmatrix_32x8_to_shared_16x16_layout`, of 8-bit elements."""
    return thread_id % 16, 16 * (thread_id // 16) + local_id % 16


def ldmatrix_32x16_to_shared_16x32_layout_b(thread_id: Any, local_id: Any) -> Place:
    """The row that a lane names for ldmatrix of a tile of B, (N, K), of 8-bit elements."""
    return 8 * (thread_id // 16) + thread_id % 8, 16 * (thread_id % 16 // 8) + local_id % 16


def mma_load_a_32x4_to_shared_16x8_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in A of what a lane holds; 32-bit elements."""
    return _of_a(thread_id, local_id, 1)


def mma_load_b_32x4_to_shared_16x8_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in B, (N, K), of what a lane holds; 32-bit elements."""
    return _of_b(thread_id, local_id, 1)


def mma_load_a_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in A of what a lane holds; 16-bit elements."""
    return _of_a(thread_id, local_id, 2)


def mma_load_b_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in B, (N, K), of what a lane holds; 16-bit elements."""
    return _of_b(thread_id, local_id, 2)


def mma_load_a_32x16_to_shared_16x32_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in A of what a lane holds; 8-bit elements."""
    return _of_a(thread_id, local_id, 4)


def mma_load_b_32x16_to_shared_16x32_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column in B, (N, K), of what a lane holds; 8-bit elements."""
    return _of_b(thread_id, local_id, 4)


mma_store_32x8_to_shared_16x16_layout = index_of_sum


def mma_store_32x4_to_shared_16x8_layout(thread_id: Any, local_id: Any) -> Place:
    """Row and column of a lane's sums of one m16n8 product."""
    return thread_id // 4 + 8 * (local_id // 2), thread_id % 4 * 2 + local_id % 2


def shared_16x8_to_mma_32x4_layout(i: Any, j: Any) -> Place:
    """Lane and element of A's (i, j); 32-bit elements."""
    return _holder(i, j, 1)


def shared_16x16_to_mma_32x8_layout(i: Any, j: Any) -> Place:
    """Lane and element of A's (i, j); 16-bit elements."""
    return _holder(i, j, 2)


def shared_16x32_to_mma_32x16_layout(i: Any, j: Any) -> Place:
    """Lane and element of A's (i, j); 8-bit elements."""
    return _holder(i, j, 4)


def _holder(i: Any, j: Any, each: int) -> Place:
    """The inverse of `_of_a`."""
    register = i // 8 + j // (4 * each) * 2
    return i % 8 * 4 + j % (4 * each) // each, register * each + j % each


#: Emitters and layouts of other instructions.
__getattr__ = names_of_others(__name__)

__all__ = ["get_swizzle_layout", *(name for name in dir() if name.endswith("_layout") or "_layout_" in name)]
