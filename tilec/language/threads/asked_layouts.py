"""Layouts of tiles that authors ask for, as digit maps; or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilec.errors import SourceError
from tilec.ir import nodes as ir
from tilec.ir.factor_layout import factored
from tilec.ir.layout import Layout as DigitMap
from tilec.ir.layout_algebra import WARP_LANES, thread_terms
from tilec.ir.roads import Loss, Road
from tilec.language.threads.launches import current_launch
from tilec.language.tiles.buffers import Buffer
from tilec.language.tiles.views import View
from tilec.language.values import session as sessions
from tilec.language.values.layouts import Fragment, Layout
from tilec.language.values.places import loc

_CONSTRUCT = "T.annotate_layout"
_FAILURES = (SourceError, ArithmeticError, LookupError, TypeError, ValueError)


class _Unfit(Exception):
    """Why a layout is no digit map of its tile, and what to change."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def ask(buffer: Buffer, layout: Layout | Callable[..., Any]) -> None:
    """Notes at the allocation of ``buffer`` that its author wants ``layout``, or why that cannot be."""
    frame = current_launch(_CONSTRUCT).frame
    assert frame is not None
    here = loc()
    try:
        found = _digit_map(buffer, layout)
    except _Unfit as unfit:
        loss = Loss("", str(unfit), unfit.remedy)
        frame.roads.append(
            Road(buffer.name, "layout", "keeps the layout that it has", here.file, here.line, loss)
        )
        return
    for place in sessions.builder(_CONSTRUCT).frames:
        for number, stmt in enumerate(place.stmts):
            if isinstance(stmt, ir.Alloc) and stmt.buffer.same_as(buffer.var):
                place.stmts[number] = replace(stmt, asked=ir.AskedLayout(found, here))


def _digit_map(buffer: Buffer, layout: Layout | Callable[..., Any]) -> DigitMap:
    scope, name = buffer.scope(), buffer.name
    if isinstance(buffer, View):
        raise _Unfit(f"{name} is a view of other memory", "annotate the tile that it is a view of")
    if scope not in ("shared.dyn", "local.fragment"):
        whose = (
            "each thread's own memory"
            if scope.startswith("local")
            else "memory of the caller or of all blocks"
        )
        raise _Unfit(f"{name} is in {whose}", "annotate shared tiles and fragments")
    shape = tuple(int(extent) for extent in buffer.shape)
    try:
        made = layout if isinstance(layout, Layout) else Layout(shape, layout)
        if made.shape != shape:
            why = f"the layout is one of {made.shape}, {name} is a tile of {shape}"
            raise _Unfit(why, "give a layout of the tile's shape")
        found = _of_fragment(made) if scope == "local.fragment" else factored({"addr": made.places()})
    except _FAILURES as error:
        raise _Unfit(
            f"the layout of {name} has no value: {error}", "compute places from the indices and integers"
        ) from error
    if found is None:
        why = "maps no digits of the indices to places of their own, up to one XOR of two of them"
        raise _Unfit(f"the layout of {name} {why}", "write it as sums of multiples of i // n % m")
    return found


def _of_fragment(layout: Layout) -> DigitMap | None:
    """The map of a fragment, whose other threads hold copies; None where its copies lie elsewhere."""
    if not isinstance(layout, Fragment):
        raise _Unfit("it names no threads", "give a T.Fragment for a fragment")
    threads = layout.threads(0)
    found = factored({"lane": threads % WARP_LANES, "warp": threads // WARP_LANES, "reg": layout.places()})
    if found is None:
        return None
    return found if all(_holds(found, layout.threads(rep)) for rep in range(1, layout.copies)) else None


def _holds(layout: DigitMap, threads: np.ndarray) -> bool:
    """Whether these threads hold the elements, too: lanes and warps that no digit names do not count."""
    return all(
        np.array_equal(
            _part(threads, term.space) // term.stride % term.size,
            _along(threads.shape, axis) // term.weight % term.size,
        )
        for axis in range(threads.ndim)
        for term in thread_terms(layout, axis)
    )


def _part(threads: np.ndarray, space: str) -> np.ndarray:
    return threads % WARP_LANES if space == "lane" else threads // WARP_LANES


def _along(shape: Sequence[int], axis: int) -> np.ndarray:
    """The index along an axis of every element."""
    return np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if at == axis else 1 for at in range(len(shape))]), shape
    )
