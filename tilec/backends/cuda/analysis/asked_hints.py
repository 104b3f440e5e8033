"""What authors ask of single copies and loops: obeyed, or a loss that says why not."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilec.backends.cuda.analysis.fragments import WARP
from tilec.backends.cuda.analysis.loops import loop_extents
from tilec.ir.hints import Hints
from tilec.ir.layout_algebra import thread_terms
from tilec.ir.nodes import Copy, Launch, Parallel, Stmt, walk
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of

_LEAVE = "leave it out"
_EVICT = "leave it out, or load the tile in a T.Pipelined of two stages or more"
_AHEAD = "use T.Pipelined with two stages or more, and aligned rows of one type"


def hinted(stmt: Stmt) -> Hints | None:
    """What the author asks of a copy or a loop; None where there is nothing."""
    return stmt.hints if isinstance(stmt, (Copy, Parallel)) and stmt.hints.given else None


def unmet(hints: Hints, kind: str, width: int = 0) -> Iterator[Loss]:
    """What a statement on a road of ``kind``, by vectors of ``width`` elements, does not obey."""
    by_tma, ahead = kind == "tma", kind in ("tma", "cp.async")
    if hints.eviction is not None and not ahead:
        yield Loss("", f"TMA and cp.async have an eviction_policy, {kind} have none", _EVICT)
    if hints.prefer_instruction == "tma" and not by_tma:
        yield Loss("", "TMA loads tiles of products and attention on sm_90a and stores their results", _LEAVE)
    if hints.prefer_instruction == "cp_async" and kind != "cp.async":
        yield Loss("", "cp.async loads shared tiles ahead of a pipelined loop's trips", _AHEAD)
    if hints.prefer_async and not ahead:
        yield Loss("", "the loop fills no shared tile ahead of a pipelined loop's trips", _AHEAD)
    if hints.loop_layout is not None and ahead:
        yield Loss("", f"loop_layout gives iterations to threads, {kind} has an order of its own", _LEAVE)
    if hints.coalesced_width is not None and by_tma:
        yield Loss("", "coalesced_width counts elements of a thread, TMA moves boxes", _LEAVE)
    elif hints.coalesced_width is not None and width < hints.coalesced_width:
        why = f"coalesced_width asks for {hints.coalesced_width} elements at once, {width} are aligned"
        yield Loss("", why, "align rows and tiles to so many, or ask for fewer")


def said(stmt: Stmt, hints: Hints, kind: str, width: int = 0) -> tuple[Road, ...]:
    """The roads that say what a statement does not obey."""
    return tuple(road_of(stmt, kind, "not as its author asks", loss) for loss in unmet(hints, kind, width))


def roads_of_roles(launch: Launch) -> tuple[Road, ...]:
    """What is not obeyed in a launch whose warps get roles: TMA moves tiles, threads the rest."""
    found = ((stmt, hints) for stmt in walk(launch.body) if (hints := hinted(stmt)) is not None)
    return tuple(road for stmt, hints in found for road in said(stmt, hints, _kind(stmt), 1))


def _kind(stmt: Stmt) -> str:
    """How roles carry out a copy or a loop."""
    by_tma = isinstance(stmt, Copy) and not stmt.hints.avoids_tma
    return "tma" if by_tma and _is_outside(stmt) else "vectors"


def _is_outside(stmt: Stmt) -> bool:
    assert isinstance(stmt, Copy)
    return any(str(region.buffer.scope()).startswith("global") for region in (stmt.src, stmt.dst))


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
