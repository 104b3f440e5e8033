"""Layout objects as digit maps of the IR, or the reason why there is none."""

from __future__ import annotations

import numpy as np

from tilec.errors import SourceError
from tilec.ir.factor_layout import factored
from tilec.ir.layout import Layout as DigitMap
from tilec.ir.layout_algebra import WARP_LANES, thread_terms
from tilec.language.values.layouts.layout import Fragment, Layout

_FAILURES = (SourceError, ArithmeticError, LookupError, TypeError, ValueError)


class UnfitLayout(Exception):
    """Why a layout is no digit map, and what to change."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def digit_map(layout: Layout, of_threads: bool) -> DigitMap:
    """Where elements lie in memory or, ``of_threads``, in lanes, warps and registers. UnfitLayout where
    no digits explain it."""
    try:
        found = _of_fragment(layout) if of_threads else factored({"addr": layout.places()})
    except _FAILURES as error:
        raise UnfitLayout(
            f"the layout has no value: {error}", "compute places from the indices and integers"
        ) from error
    if found is None:
        why = "the layout maps no digits of the indices to places of their own, up to one XOR of two of them"
        raise UnfitLayout(why, "write it as sums of multiples of i // n % m")
    return found


def _of_fragment(layout: Layout) -> DigitMap | None:
    """The map of a fragment, whose other threads hold copies; None where its copies lie elsewhere."""
    if not isinstance(layout, Fragment):
        raise UnfitLayout("the layout names no threads", "give a T.Fragment")
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
            np.indices(threads.shape)[axis] // term.weight % term.size,
        )
        for axis in range(threads.ndim)
        for term in thread_terms(layout, axis)
    )


def _part(threads: np.ndarray, space: str) -> np.ndarray:
    return threads % WARP_LANES if space == "lane" else threads // WARP_LANES
