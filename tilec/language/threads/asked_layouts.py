"""Layouts of tiles that authors ask for, as digit maps; or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilec.ir import nodes as ir
from tilec.ir.layout import Layout as DigitMap
from tilec.ir.roads import Loss
from tilec.language.threads.launches import current_launch
from tilec.language.tiles.memory.buffers import Buffer
from tilec.language.tiles.memory.views import View
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import note
from tilec.language.values.kernel.places import loc
from tilec.language.values.layouts.digit_maps import UnfitLayout, digit_map
from tilec.language.values.layouts.layout import Layout

_CONSTRUCT = "T.annotate_layout"


def ask(buffer: Buffer, layout: Layout | Callable[..., Any]) -> None:
    """Notes at the allocation of ``buffer`` that its author wants ``layout``, or why that cannot be."""
    current_launch(_CONSTRUCT)
    try:
        found = _digit_map(buffer, layout)
    except UnfitLayout as unfit:
        note(buffer.name, "layout", "keeps the layout that it has", Loss("", str(unfit), unfit.remedy))
        return
    for place in sessions.builder(_CONSTRUCT).frames:
        for number, stmt in enumerate(place.stmts):
            if isinstance(stmt, ir.Alloc) and stmt.buffer.same_as(buffer.var):
                place.stmts[number] = replace(stmt, asked=ir.AskedLayout(found, loc()))


def _digit_map(buffer: Buffer, layout: Layout | Callable[..., Any]) -> DigitMap:
    scope, name = buffer.scope(), buffer.name
    if isinstance(buffer, View):
        raise UnfitLayout(f"{name} is a view of other memory", "annotate the tile that it is a view of")
    if scope not in ("shared.dyn", "local.fragment"):
        whose = (
            "each thread's own memory"
            if scope.startswith("local")
            else "memory of the caller or of all blocks"
        )
        raise UnfitLayout(f"{name} is in {whose}", "annotate shared tiles and fragments")
    shape = tuple(int(extent) for extent in buffer.shape)
    made = layout if isinstance(layout, Layout) else Layout(shape, layout)
    if not all(isinstance(extent, int) for extent in made.shape) or made.shape != shape:
        why = f"the layout is one of {made.shape}, {name} is a tile of {shape}"
        sessions.builder(_CONSTRUCT).warn_once(f"{why}, which keeps the layout that it has")
        raise UnfitLayout(why, "give a layout of the tile's shape")
    return digit_map(made, scope == "local.fragment")
