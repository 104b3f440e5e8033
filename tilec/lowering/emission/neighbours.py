"""Elements that lie side by side in memory, in every lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.exprs import int_value
from tilec.lowering.emission.access import open_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import TensorLoad

    from tilec.lowering.emission.context import Context


def are_neighbours(elements: Sequence[TensorLoad], ctx: Context) -> bool:
    """Whether elements are neighbours inside of their buffer, in every lane."""
    first = elements[0]
    storage = ctx.storage(first.source)
    if storage.layout is not None or storage.copies > 1 or int_value(storage.strides[-1]) != 1:
        return False
    return all(
        load.source.same_as(first.source)
        and _distance(first, load, ctx) == number
        and open_bounds(load.source, tuple(load.indices), ctx) == []
        for number, load in enumerate(elements)
    )


def _distance(first: TensorLoad, other: TensorLoad, ctx: Context) -> int | None:
    """How far two elements lie apart in a row; None in different rows."""
    gaps = [int_value(ctx.facts.simplify(b - a)) for a, b in zip(first.indices, other.indices, strict=True)]
    return None if any(gap != 0 for gap in gaps[:-1]) else gaps[-1]
