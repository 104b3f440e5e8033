"""The layouts that authors ask for: which of them the statements of a launch can obey, and why not others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import AsyncCopy, AsyncGather
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import chunk, extent_of, thread_terms
from tilec.ir.nodes import Alloc, Launch, Stmt, walk
from tilec.ir.nodes.threads import LaneLoad
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import MOST_REGISTERS

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

OBEYED = "laid out as T.annotate_layout says"
#: Bytes of a row that ldmatrix reads at once.
_ROW_BYTES = 16


def asked(launch: Launch) -> Iterator[Alloc]:
    """The allocations whose author asks for a layout."""
    return (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.asked is not None)


def layout_road(alloc: Alloc, how: str, loss: Loss | None = None) -> Road:
    """The road of a layout, in the line that asks for it."""
    assert alloc.asked is not None
    return road_of(replace(alloc, loc=alloc.asked.loc or alloc.loc), "layout", how, loss)


def obeyed(
    launch: Launch, warps: Mapping[Var, int], addressed: Set[Var]
) -> tuple[dict[Var, Layout], tuple[Road, ...]]:
    """The layouts that are obeyed, and what is to be said of all. ``warps``: how many of them hold each
    fragment; foreign code has the addresses of tiles that are ``addressed``."""
    found: dict[Var, Layout] = {}
    roads = []
    for alloc in asked(launch):
        assert alloc.asked is not None
        tile, layout = alloc.buffer, alloc.asked.layout
        if tile.scope() == "local.fragment":
            loss = _of_fragment(tile, layout, warps[tile])
        else:
            loss = _of_tile(tile, layout, launch, addressed)
        roads.append(layout_road(alloc, OBEYED if loss is None else "keeps the layout that it has", loss))
        found |= {tile: layout} if loss is None else {}
    return found, tuple(roads)


def _of_fragment(tile: Var, layout: Layout, warps: int) -> Loss | None:
    lanes = [term for axis in range(len(layout.digits)) for term in thread_terms(layout, axis)]
    odd = [term for term in lanes if term.space == "lane" and (_is_odd(term.size) or _is_odd(term.stride))]
    held, registers = extent_of(layout, "warp"), extent_of(layout, "reg")
    conditions = (
        (bool(odd), "lanes hold parts whose number is no power of two", "spread it over 2 to 32 lanes"),
        (held > warps or warps % held != 0, f"it takes {held} warps, {warps} share {tile.name}",
         f"spread it over threads whose number divides {32 * warps}"),
        (registers > MOST_REGISTERS, f"it takes {registers} registers", "spread it over more threads"),
    )  # fmt: skip
    return next((Loss("", why, remedy) for holds, why, remedy in conditions if holds), None)


def _is_odd(number: int) -> bool:
    return number & (number - 1) != 0


def _of_tile(tile: Var, layout: Layout, launch: Launch, addressed: Set[Var]) -> Loss | None:
    if tile in addressed:
        why = f"code in another language gets the address of {tile.name}, and knows rows alone"
        return Loss("", why, "index the tile, or leave T.annotate_layout out")
    size = element_bytes(str(tile.dtype))
    needed = max((_neighbours(stmt, tile) for stmt in walk(launch.body)), default=1)
    if needed <= chunk(layout):
        return None
    moved, kept = needed * size, chunk(layout) * size
    why = f"{moved} bytes of a row of {tile.name} are moved at once, it keeps {kept} together"
    return Loss("", why, f"keep {moved} bytes of a row together, and rows apart by multiples of that")


def _neighbours(stmt: Stmt, tile: Var) -> int:
    """The elements of a tile that a statement takes to lie side by side, whatever the layout is."""
    if isinstance(stmt, LaneLoad) and tile in set(buffers(stmt)):
        return _ROW_BYTES // element_bytes(str(tile.dtype))
    if isinstance(stmt, (AsyncCopy, AsyncGather)) and tile in set(buffers(stmt)):
        return stmt.width
    return 1
