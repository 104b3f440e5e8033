"""Stores of several values to as many places, as of the lanes of a vector: all values are there before the
first one is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilec.language.values.kernel import session as sessions
from tilec.language.values.value import Value, Word

if TYPE_CHECKING:
    from tilec.language.tiles.memory.buffers import Element


def store_lanes(places: Sequence[Element], values: Sequence[Any]) -> None:
    """Adds a store for each place. Values are evaluated in front of them where one reads what another's
    store writes: A[1:5] = A[0:4] + 1."""
    if any(_reads_others(place, value) for place, value in zip(places, values, strict=True)):
        values = [_evaluated(place, value) for place, value in zip(places, values, strict=True)]
    for place, value in zip(places, values, strict=True):
        place.store(value)


def _reads_others(place: Element, value: Any) -> bool:
    """Whether a value reads other elements than its place of the buffer that it is stored to."""
    from tilec.ir.exprs import loads, same_all

    found = loads(value.expr) if isinstance(value, Value) else ()
    ours = (load for load in found if load.source.same_as(place.buffer.var))
    return not all(same_all(tuple(load.indices), place.indices) for load in ours)


def _evaluated(place: Element, value: Any) -> Any:
    if not isinstance(value, Value):
        return value
    made = sessions.builder("a vector").bind(f"{place.buffer.name}_lane", value)
    return Word(made, value.kind) if isinstance(value, Word) else made
