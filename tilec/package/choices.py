"""Which variants of a kernel serve the same calls, so that the least cost decides: told here for records,
for the metadata of a library and for variants of a manifest.

Such variants have costs, and share target, guards and demands on alignment; they stand together in dispatch
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypeAlias

#: What variants share that serve the same calls; None of one without a cost.
Calls: TypeAlias = "tuple[object, ...] | None"


def calls(target: str, guards: object, align: object, cost: str) -> Calls:
    """What a variant serves. ``guards`` and ``align`` are compared, in whatever form they have."""
    return (target, guards, align) if cost else None


def choices(served: Sequence[Calls]) -> list[range]:
    """For each variant, in dispatch order, those among which a call chooses that dispatch brings to it:
    neighbours with the same calls, or it alone."""
    found: list[range] = []
    for key, members in groupby(served):
        first, count = len(found), len(list(members))
        together = range(first, first + count)
        found += [together if key is not None else range(at, at + 1) for at in together]
    return found
