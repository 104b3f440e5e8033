"""What a loop or a reduction takes that no layout decides: the widest coalesced vectors, but where threads
have rows of fragments to themselves, or read what their neighbours read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import WARP, coalesced, extended
from tilec.backends.cuda.analysis.layouts.loops import left_out, loop_extents, with_neighbours, with_rows
from tilec.backends.cuda.analysis.layouts.summed_fragments import summed_layout
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.passes.layouts.inference.follow import assign, derive
from tilec.ir.nodes import Parallel, Reduce
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.uses import used_in

if TYPE_CHECKING:
    from tilec.backends.cuda.passes.layouts.inference.known import Known
    from tilec.ir.layout import Layout


def choose(known: Known) -> bool:
    """A layout for the largest statement of a team that nothing decides, of equal ones for that with the
    widest vectors, but first for loops whose iterations have rows of fragments to themselves or read windows;
    whether there was one."""
    undecided = [stmt for stmt in known.work if isinstance(stmt, Reduce) or stmt not in known.loops]
    for stmt in sorted(undecided, key=lambda stmt: _rank(known, stmt), reverse=True):
        if isinstance(stmt, Parallel):
            _decide(known, stmt)
            return True
        if known.is_open(stmt.src.buffer):
            known.layouts[stmt.src.buffer] = coalesced(static_extents(stmt.src.buffer), known.warps, 1)
            return True
    return False


def _decide(known: Known, loop: Parallel) -> None:
    derive(known, loop, partly=True)
    if loop not in known.loops:
        plain = _coalesced(known, loop)
        assign(known, loop, _summed(known, loop, plain) or plain)


def _rank(known: Known, stmt: Parallel | Reduce) -> tuple[bool, int, int]:
    """How much a statement has to say."""
    first = isinstance(stmt, Parallel) and (any(known.open_rows(stmt)) or known.windows(stmt))
    return bool(first), _work(stmt), known.widths.found.get(stmt, 1)


def _work(stmt: Parallel | Reduce) -> int:
    """How many elements a loop or a reduction visits."""
    if isinstance(stmt, Parallel):
        return math.prod(loop_extents(stmt))
    return math.prod(static_extents(stmt.src.buffer))


def _summed(known: Known, loop: Parallel, plain: Layout) -> Layout | None:
    """The layout of a loop over fragments that reductions sum in trips that move nothing of them, where it is
    better than a ``plain`` one."""
    found = {known.summed[item.buffer] for item in accesses(loop.body) if item.buffer in known.summed}
    if len(found) != 1 or len(extents := loop_extents(loop)) != 2:
        return None
    summed = found.pop()
    along = (extents[summed.axis],)
    lines = (stmt for stmt in known.loops_of_work() if loop_extents(stmt) == along)
    vector = max((known.widths.alike.get(line, known.widths.found[line]) for line in lines), default=1)
    return summed_layout(extents, summed, known.warps, vector, plain)


def _coalesced(known: Known, loop: Parallel) -> Layout:
    """The layout of a loop that no fragment decides. What fragments whose rows its iterations have leave out
    of its variables is in registers, so that a thread has the row for all of their values; where they read
    what their neighbours read, too, a thread has neighbours."""
    extents, windows = loop_extents(loop), known.windows(loop)
    held = {axis for rows in known.open_rows(loop) for axis in left_out(rows, loop)}
    free = [axis for axis in range(len(extents)) if axis not in held]
    if not held or not free:
        width = _width_of_all(known, loop, range(len(extents))) if windows else known.widths.found[loop]
        return with_neighbours(coalesced(extents, known.warps, width), windows)
    width = _width_of_all(known, loop, free)
    spread = extended(((),) * len(extents), extents, free, [(1, WARP)], [(1, known.warps)], width)
    return with_rows(spread, extents)


def _width_of_all(known: Known, loop: Parallel, axes: Sequence[int]) -> int:
    """How many neighbours along the last of some ``axes`` a thread may have of a loop and of those that fill
    and empty its fragments, such that there are some for all threads."""
    used = {item.buffer for item in accesses(loop.body) if known.is_open(item.buffer)}
    others = (stmt for stmt in known.loops_of_work() if used & used_in((stmt,)))
    extents = loop_extents(loop)
    each = max(math.prod(extents[axis] for axis in axes) // (known.warps * WARP), 1)
    widths = (math.gcd(known.widths.found[other], each, extents[axes[-1]]) for other in others)
    return max(widths, default=known.widths.found[loop])
