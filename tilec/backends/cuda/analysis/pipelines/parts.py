"""The part of a tile that each warpgroup fills, as boxes that TMA stores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tilec.backends.cuda.analysis.layouts.fragments import WARP, WARPS_OF_A_GROUP
from tilec.backends.cuda.analysis.products.wgmma import GROUP_ROWS
from tilec.ir.layout_algebra import element_at, extent_of

if TYPE_CHECKING:
    from tilec.ir.layout import Layout

#: Rows of a box at most.
_LARGEST = 256


@dataclass(frozen=True)
class Parts:
    """``box``: rows and columns of each; ``starts``: where those of the first warpgroup begin, ``step``: as
    many rows and columns further those of the next one."""

    box: tuple[int, int]
    starts: tuple[tuple[int, int], ...]
    step: tuple[int, int]


@lru_cache(maxsize=64)
def parts_of(layout: Layout, columns: int) -> Parts | None:
    """The boxes of so many ``columns`` of what threads have of a tile of two axes; None where they have
    elements twice, or parts are no boxes that lie alike."""
    warps, count = extent_of(layout, "warp"), extent_of(layout, "reg")
    place = {
        "warp": np.arange(warps)[:, None, None],
        "lane": np.arange(WARP)[None, :, None],
        "reg": np.arange(count)[None, None, :],
        "group": 0,
    }
    rows, across = (np.broadcast_to(each, (warps, WARP, count)) for each in element_at(layout, place))
    if warps % WARPS_OF_A_GROUP or extent_of(layout, "group") != 1:
        return None
    groups = [slice(first, first + WARPS_OF_A_GROUP) for first in range(0, warps, WARPS_OF_A_GROUP)]
    found = [_boxes(rows[group], across[group], columns) for group in groups]
    first, behind = found[0], found[-1]
    if first is None or behind is None:
        return None
    (box, starts), last = first, max(len(found) - 1, 1)
    step = tuple((there - here) // last for here, there in zip(starts[0], behind[1][0], strict=True))
    made = Parts(box, starts, (step[0], step[1]))
    alike = all(each == (box, _moved(made, number)) for number, each in enumerate(found))
    return made if alike else None


def _moved(parts: Parts, group: int) -> tuple[tuple[int, int], ...]:
    """Where the boxes of a warpgroup begin."""
    down, right = parts.step
    return tuple((row + group * down, column + group * right) for row, column in parts.starts)


def _boxes(
    rows: np.ndarray, across: np.ndarray, columns: int
) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]] | None:
    """Rows and columns of boxes, and where they begin, of elements that are all of some rows and columns."""
    down, right = np.unique(rows), np.unique(across)
    places = np.unique(rows.astype(np.int64) << 32 | across)
    if not len(places) == rows.size == len(down) * len(right):
        return None
    (height, tops), (width, lefts) = _runs(down), _runs(right)
    aligned = all(top % GROUP_ROWS == 0 for top in (height, *tops))
    whole = all(left % columns == 0 for left in (width, *lefts))
    if not (height and width and aligned and whole and height <= _LARGEST):
        return None
    starts = ((top, left + more) for top in tops for left in lefts for more in range(0, width, columns))
    return (height, columns), tuple(starts)


def _runs(numbers: np.ndarray) -> tuple[int, list[int]]:
    """How long runs of numbers are (0: not all alike), and where they begin."""
    cuts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    sizes = {len(run) for run in cuts}
    return (sizes.pop() if len(sizes) == 1 else 0), [int(run[0]) for run in cuts]
