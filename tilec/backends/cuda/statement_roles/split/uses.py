"""Where those who compute use what a producer loads, and that no trip ends before they have given it back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.analysis.jumps import jumps
from tilec.ir.nodes import Block, children
from tilec.lowering.analysis.uses import touches

if TYPE_CHECKING:
    from tilec.backends.cuda.statement_roles.rings.plan import Plan
    from tilec.backends.cuda.statement_roles.rings.ring import Ring


def uses_of(block: Block, plan: Plan) -> Iterator[tuple[Ring, int, list[int]]]:
    """For every filling of a ring in a block the position of its first load, and of the statements that use
    what it brings."""
    for ring in plan.rings:
        first_tile = ring.tiles[0]
        puts = [
            i
            for i, stmt in enumerate(block)
            if stmt in plan.loads and plan.loads[stmt].tile.same_as(first_tile)
        ]
        for put, end in pairwise([*puts, len(block)]):
            uses = [
                i
                for i in range(put + 1, end)
                if block[i] not in plan.loads and any(touches(block[i], tile) for tile in ring.tiles)
            ]
            yield ring, put, uses


def check_ends(block: Block, plan: Plan) -> None:
    """Unfit for a block that may be left between a load and the last use of what it brings: the producer
    would be a stage ahead of those who compute from there on, or wait for a stage for ever."""
    for _, first, uses in uses_of(block, plan):
        for stmt in block[first : max(uses, default=first) + 1]:
            jump = next(jumps(stmt), None)
            if jump is not None:
                why = "a trip may end between a load and the last use of what it brings"
                raise Unfit(why, jump, remedy="leave the loop in front of the loads or behind the products")
    for stmt in block:
        for inner in children(stmt):
            check_ends(inner, plan)
