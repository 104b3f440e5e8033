"""What authors ask of single copies and loops: obeyed, or a loss that says why not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.ir.hints import Hints
from tilec.ir.layout_algebra import thread_terms
from tilec.ir.nodes import Copy, Launch, Parallel, Stmt, walk
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of

_LEAVE = "leave it out"
#: What moves elements -> its name.
_MOVES = {
    "tma": "TMA",
    "multicast": "TMA",
    "cp.async": "cp.async",
    "gathered": "a warp's gathers",
    "registers": "stores from registers",
    "vectors": "vectors",
    "elements": "loops over elements",
    "threads": "loops of threads",
}
_EVICT = "leave it out, or load the tile in a T.Pipelined of two stages or more"
_SHARE = "docs/cuda.md lists which tiles blocks bring for each other"
_AHEAD = "use T.Pipelined with two stages or more, and aligned rows of one type"


def hinted(launch: Launch) -> tuple[Copy | Parallel, ...]:
    """The copies and loops of a launch of which their author asks something."""
    found = (stmt for stmt in walk(launch.body) if isinstance(stmt, (Copy, Parallel)))
    return tuple(stmt for stmt in found if stmt.hints.given)


def unmet(hints: Hints, kind: str, width: int = 0) -> Iterator[Loss]:
    """What a statement on a road of ``kind``, by vectors of ``width`` elements, does not obey."""
    by_tma, name = kind in ("tma", "multicast"), _MOVES[kind]
    ahead = by_tma or kind == "cp.async"
    if hints.avoids_tma and by_tma:
        yield Loss("", "a launch with warp roles moves this tile by TMA alone", _LEAVE)
    if hints.eviction is not None and not ahead:
        yield Loss("", f"TMA and cp.async have an eviction_policy, {name} have none", _EVICT)
    if hints.prefer_instruction == "tma" and not by_tma:
        yield Loss("", "on sm_90a TMA loads tiles of products and attention, stores and adds results", _LEAVE)
    if hints.prefer_instruction == "cp_async" and kind != "cp.async":
        yield Loss("", "cp.async loads shared tiles ahead of a pipelined loop's trips", _AHEAD)
    if hints.prefer_async and not ahead:
        yield Loss("", "the loop fills no shared tile ahead of a pipelined loop's trips", _AHEAD)
    if hints.loop_layout is not None and ahead:
        yield Loss("", f"loop_layout gives iterations to threads, {name} has an order of its own", _LEAVE)
    if hints.cluster_mask is not None and kind != "multicast":
        yield Loss("", "each block of cluster_mask brings the tile itself", _SHARE)
    if hints.coalesced_width is not None and by_tma:
        yield Loss("", "coalesced_width counts elements of a thread, TMA moves boxes", _LEAVE)
    elif hints.coalesced_width is not None and width < hints.coalesced_width:
        why = f"coalesced_width asks for {hints.coalesced_width} elements at once, {width} are aligned"
        yield Loss("", why, "align rows and tiles to so many, or ask for fewer")


def said(stmt: Stmt, hints: Hints, kind: str, width: int = 0) -> tuple[Road, ...]:
    """The roads that say what a statement does not obey."""
    return tuple(road_of(stmt, kind, "not as its author asks", loss) for loss in unmet(hints, kind, width))


def roads_of_roles(launch: Launch, taken: Sequence[Road]) -> tuple[Road, ...]:
    """What is not obeyed in a launch whose warps have roles and whose statements have ``taken`` these roads:
    what has none that moves elements is a loop of threads."""
    kinds = {(road.file, road.line): road.kind for road in taken if road.kind in _MOVES}
    found = ((stmt, _place(stmt)) for stmt in launch.asked if isinstance(stmt, (Copy, Parallel)))
    kept = ((stmt, kinds.get(place, "vectors")) for stmt, place in found)
    return tuple(road for stmt, kind in kept for road in said(stmt, stmt.hints, kind, 1))


def _place(stmt: Stmt) -> tuple[str, int]:
    return ("", 0) if stmt.loc is None else (stmt.loc.file, stmt.loc.line)


def layout_loss(loop: Parallel, warps: int) -> Loss | None:
    """Why ``warps`` cannot share a loop as its author asks; None where they can, or nothing is asked."""
    layout = loop.hints.loop_layout
    if layout is None:
        return None
    if layout.shape != loop_extents(loop):
        why = f"loop_layout is one of {layout.shape}, the loop has {loop_extents(loop)}"
        return Loss("", why, "give it the extents of the loop, those of 1 left out")
    terms = [term for axis in range(len(layout.digits)) for term in thread_terms(layout, axis)]
    powers = all(number & (number - 1) == 0 for term in terms for number in (term.size, term.stride))
    if not powers or math.prod(term.size for term in terms) != WARP * warps:
        return Loss(
            "", f"loop_layout does not share the loop among {WARP * warps} threads", "use each of them"
        )
    return None
