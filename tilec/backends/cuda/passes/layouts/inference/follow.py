"""What follows from layouts that are known: a loop's from a fragment that it indexes by its variables, those
of its other fragments from the loop's, a reduction's result from its source.

``for i, j: scores[i, j] = exp(scores[i, j] - top[i])`` over the sums of a product: the thread that holds
``scores[i, j]`` runs iteration (i, j), and every thread with an element of row i holds ``top[i]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.loops import (
    fitting_fragment,
    followed,
    loop_extents,
    loop_layout,
    loop_lines,
    with_rows,
)
from tilec.backends.cuda.analysis.layouts.sectors import moves_along, run_of_warp, turns
from tilec.backends.cuda.analysis.layouts.tiles import result_layout, static_extents
from tilec.ir.nodes import Parallel, Reduce
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import SECTOR

if TYPE_CHECKING:
    from tilec.backends.cuda.passes.layouts.inference.known import Known
    from tilec.ir.layout import Layout


def propagate(known: Known) -> bool:
    """One round over the loops and reductions of a team; whether anything new is known."""
    before = known.num_known()
    for stmt in known.work:
        if isinstance(stmt, Reduce):
            _slice(known, stmt)
        elif stmt not in known.loops:
            derive(known, stmt, partly=False)
    return known.num_known() > before


def derive(known: Known, loop: Parallel, partly: bool) -> None:
    """The layout of a loop from the fragments that it indexes by its variables; ``partly``: also by some of
    them."""
    items = [item for item in accesses(loop.body) if item.buffer in known.layouts
             and item.buffer in known.fragments]  # fmt: skip
    items.sort(key=lambda item: not item.is_write)
    found = fitting_fragment(loop, items, known.layouts, partly)
    if found is not None:
        assign(known, loop, loop_layout(loop, found, known.layouts, known.warps, known.widths.found[loop]))


def assign(known: Known, loop: Parallel, layout: Layout) -> None:
    """Gives a loop its layout, and fragments that it indexes by its variables theirs."""
    known.loops[loop] = layout
    for item in accesses(loop.body):
        made = _followed(known, item, loop, layout) if known.is_open(item.buffer) else None
        if made is not None:
            known.layouts[item.buffer] = made


def _followed(known: Known, item: Access, loop: Parallel, layout: Layout) -> Layout | None:
    """The layout of an open fragment from that of a loop which names it; None where the loop decides none, or
    a worse one than the fragment gets without it."""
    shape, sizes = static_extents(item.buffer), loop_extents(loop)
    lines, rows = loop_lines(item, loop), known.row_lines(item, loop)
    lines_known = lines or rows or ()
    ends = (own[-1] if own else None for own in lines_known)
    extents = tuple(
        sizes[end.axis] * end.factor // end.per if end else extent if rows else 1
        for end, extent in zip(ends, shape, strict=False)
    )
    made = followed(layout, lines_known) if shape == extents else None
    if made is None or not (rows or not _is_scattered(known, item, loop, made)):
        return None
    return with_rows(made, shape) if rows else made


def _is_scattered(known: Known, item: Access, loop: Parallel, layout: Layout) -> bool:
    """Whether a fragment that lies so, turned from how a loop has another one, would meet each sector of a
    tensor several times in a loop that moves it: passing shared memory takes less."""
    if not any(turns(item, other, loop) for other in accesses(loop.body) if other.buffer in known.layouts):
        return False
    fragment = item.buffer
    together = run_of_warp(layout, static_extents(fragment)) * element_bytes(str(fragment.dtype))
    loops = (stmt for stmt in known.loops_of_work() if stmt not in known.loops)
    return together < SECTOR and any(moves_along(loop, fragment) for loop in loops)


def _slice(known: Known, stmt: Reduce) -> None:
    """The layout of what a reduction leaves, from that of a fragment that it reads."""
    source = known.layouts.get(stmt.src.buffer)
    if source is None or not {stmt.src.buffer, stmt.dst.buffer} <= known.fragments:
        return
    known.layouts.setdefault(stmt.dst.buffer, result_layout(stmt, source))
