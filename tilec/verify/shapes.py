"""Which shapes a variant is tried with: the edges of its guards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.ir.guards import Guard
from tilec.manifest.guards import smallest

#: What an open dim is tried with beside its least value: below, at and past the widths of vectors and blocks.
_TYPICAL = (7, 64, 133)
#: Upper bounds above this are not tried: the oracle would take too long.
_LARGEST = 1024


def guard_of(fields: Mapping[str, Any] | None) -> Guard:
    """A guard from its metadata; None is the guard that admits everything."""
    fields = fields or {}
    return Guard(fields.get("eq"), fields.get("div", 1), fields.get("min"), fields.get("max"))


def edge_values(guard: Guard) -> tuple[int, ...]:
    """Dimensions that a guard admits, ascending: the least, typical ones, and bounds where they are small."""
    low = smallest(guard)
    if low is None:
        return ()
    if guard.eq is not None:
        return (guard.eq,)
    wanted = {low, low + guard.div, *(value // guard.div * guard.div for value in _TYPICAL)}
    if guard.max is not None and guard.max <= _LARGEST:
        wanted.add(guard.max // guard.div * guard.div)
    return tuple(sorted(value for value in wanted if value >= 1 and guard.admits(value)))


def edge_shapes(guards: Mapping[str, Guard]) -> list[dict[str, int]]:
    """Some combinations of edge values: all least, all largest, and two that mix small and large ones."""
    values = {name: edge_values(guard) for name, guard in guards.items()}
    picks = [
        {name: options[0] for name, options in values.items()},
        {name: options[-1] for name, options in values.items()},
        {name: options[at % 2 - 1] for at, (name, options) in enumerate(values.items())},
        {name: options[(at + 1) % len(options)] for at, (name, options) in enumerate(values.items())},
    ]
    return [pick for at, pick in enumerate(picks) if pick not in picks[:at]]
