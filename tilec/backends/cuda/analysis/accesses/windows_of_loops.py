"""Loops whose iterations read what their neighbours read, too: windows of shared tiles and tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.loops import loop_extents, step_along
from tilec.ir.exprs import int_value, linear_in
from tilec.ir.nodes import is_global
from tilec.lowering.analysis.accesses import accesses

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Parallel


def window_axes(loop: Parallel, trips: Set[Var]) -> set[int]:
    """The variables of a loop, by position and without the last one, from which places that it reads are at
    several distances, told by constants or by ``trips``: a thread with neighbours along such a variable reads
    most of what they read once."""
    extents, found = loop_extents(loop), set()
    distances: dict[tuple[Var, int, int], set[int]] = defaultdict(set)
    for buffer, dimension, axis, rest in _places(loop):
        steps = (step_along(rest, trip) for trip in trips)
        if any(0 < abs(step) < extents[axis] for step in steps):
            found.add(axis)
        if (distance := int_value(rest)) is not None:
            distances[buffer, dimension, axis].add(distance)
    return found | {axis for (_, _, axis), several in distances.items() if len(several) > 1}


def _places(loop: Parallel) -> Iterator[tuple[Var, int, int, Expr]]:
    """The reads of shared tiles and tensors: which one, its dimension, the variable that counts it, and what
    is added to that."""
    for item in accesses(loop.body):
        if item.is_write or not (is_global(item.buffer) or item.buffer.scope() == "shared.dyn"):
            continue
        for dimension, index in enumerate(item.indices):
            for axis, var in enumerate(loop.vars[:-1]):
                if step_along(index, var) == 1:
                    yield item.buffer, dimension, axis, linear_in(index, [var])[1]
