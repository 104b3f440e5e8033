"""The tensor maps of a product's operands; an operand that no map can describe goes without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.matmul.nodes import WindowCopy
from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.ring import half_rows
from tilec.backends.cuda.warp_roles.tma import check_tensor, has_aligned_rows, tensor_map
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.ir.nodes import Copy
    from tilec.lowering.analysis.facts import Facts


def is_gathered(copy: Copy | WindowCopy, facts: Facts) -> bool:
    """Whether a load goes without TMA: a contiguous tensor whose rows are not known to be aligned."""
    if isinstance(copy, WindowCopy) or len(copy.src.buffer.strides):
        return False
    return not has_aligned_rows(copy.src.buffer, facts)


def load_map(copy: Copy | WindowCopy, facts: Facts, halves: bool = False) -> TensorMap:
    """The map of a load: boxes of all rows of the tile by 128 bytes, or of half of the rows."""
    size = element_bytes(str(copy.src.buffer.dtype))
    rows = int_value(copy.dst.extent[-2])
    assert rows is not None
    if isinstance(copy, WindowCopy):
        check_tensor(copy.src.buffer, facts)
        return TensorMap(copy.src.buffer, (rows, ROW_BYTES // size), ROW_BYTES, copy.window)
    box = half_rows(rows) if halves else rows
    return tensor_map(copy.src.buffer, box, ROW_BYTES // size, ROW_BYTES, facts)
