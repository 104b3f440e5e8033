"""Fragments that loops bring or store by single elements, because rows of a tensor begin anywhere.

    x[i, j] = X[i, j]; g[j] = G[j]; Y[i, j] = x[i, j] * g[j]     X of n columns: x and g are held alike

A thread that had neighbours of them would have each of its single elements in a sector of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST, begins_anywhere
from tilec.backends.cuda.analysis.layouts.loops import loop_axis, step_along
from tilec.ir.exprs import uses
from tilec.ir.nodes import Launch, Parallel, is_global, walk
from tilec.lowering.analysis.accesses import Access, accesses

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.lowering.analysis.facts import Facts


def held_by_elements(launch: Launch, facts: Facts) -> set[Var]:
    """The fragments of a launch whose last axis runs, in some loop, along rows of a tensor that hold no
    vectors, and all that loops have along the same axis as these."""
    loops = [stmt for stmt in walk(launch.body) if type(stmt) is Parallel]
    along = [fragments_along(loop) for loop in loops]
    more = {each for loop, names in zip(loops, along, strict=True) if _is_odd(loop, facts) for each in names}
    found: set[Var] = set()
    while more:
        found |= more
        more = {each for names in along if names & found for each in names} - found
    return found


def fragments_along(loop: Parallel) -> set[Var]:
    """Those whose last axis is a loop's last variable."""
    last = len(loop.vars) - 1
    items = (item for item in accesses(loop.body) if item.buffer.scope() == "local.fragment")
    return {item.buffer for item in items if loop_axis(item.indices[-1], loop) == last}


def _is_odd(loop: Parallel, facts: Facts) -> bool:
    return any(is_global(item.buffer) and _runs_along_row(item, loop, facts) for item in accesses(loop.body))


def _runs_along_row(item: Access, loop: Parallel, facts: Facts) -> bool:
    """Whether an access has neighbours of a row that is known to hold no vectors."""
    *rows, last = map(facts.inline, item.indices)
    var = loop.vars[-1]
    if not rows or any(uses(row, (var,)) for row in rows) or step_along(last, var) != 1:
        return False
    return begins_anywhere(item.buffer, item.indices, var, WIDEST, facts) == 1
