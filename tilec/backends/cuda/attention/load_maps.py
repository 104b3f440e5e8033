"""The tensor maps of tiles that are boxes of any two axes of a tensor, the last one among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.tma import box_map
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.ir.nodes import Copy
    from tilec.lowering.analysis.facts import Facts


def load_map(copy: Copy, facts: Facts) -> TensorMap:
    """Boxes of all rows of a tile by 128 bytes; Unfit where TMA cannot address them."""
    box = [int_value(extent) or 1 for extent in copy.src.extent]
    box[-1] = ROW_BYTES // element_bytes(str(copy.src.buffer.dtype))
    return box_map(copy.src.buffer, tuple(box), ROW_BYTES, facts)
