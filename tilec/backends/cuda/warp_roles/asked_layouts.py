"""What warp roles make of the layouts that authors ask for: tiles lie as TMA and wgmma take them."""

from __future__ import annotations

from tilec.backends.cuda.analysis.asked_layouts import asked, layout_road
from tilec.backends.cuda.analysis.tiles import static_extents
from tilec.backends.cuda.warp_roles.ring import tile_layout
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Copy, Launch, walk
from tilec.ir.roads import Loss, Road
from tilec.lowering.emission.storage import element_bytes

_REMEDY = "leave T.annotate_layout out; only launches without warp roles obey it"


def layouts_of_roles(launch: Launch) -> tuple[Road, ...]:
    """What becomes of the layouts that the author of a launch asks for when its warps get roles."""
    losses = ((alloc, _loss(alloc, launch)) for alloc in asked(launch))
    return tuple(layout_road(alloc, "laid out as TMA and wgmma take it", loss) for alloc, loss in losses)


def _loss(alloc: Alloc, launch: Launch) -> Loss | None:
    """None for an operand whose author asks for the very order that TMA writes and wgmma reads."""
    assert alloc.asked is not None
    loaded = any(
        isinstance(stmt, Copy) and stmt.dst.buffer.same_as(alloc.buffer) for stmt in walk(launch.body)
    )
    if loaded and canonical(alloc.asked.layout) == _of_roles(alloc):
        return None
    why = f"tiles of TMA and wgmma have slabs of {ROW_BYTES} bytes in one order, and fragments those of wgmma"
    return Loss("", why, _REMEDY)


def _of_roles(alloc: Alloc) -> Layout | None:
    """The layout of an operand of roles."""
    shape, dtype = static_extents(alloc.buffer), str(alloc.buffer.dtype)
    if len(shape) != 2 or shape[1] * element_bytes(dtype) % ROW_BYTES:
        return None
    made = tile_layout((1, *shape), dtype)
    return canonical(Layout(made.digits[1:], made.swizzle))
