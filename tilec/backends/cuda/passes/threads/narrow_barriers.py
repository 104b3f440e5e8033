"""Barriers order shared memory alone where threads pass each other nothing in global memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from tilec.backends.cuda.analysis.accesses.touches import Owners, Touched, touched
from tilec.backends.cuda.nodes import REPEATING, AsyncGather, SharedSync, Sync, ThreadLoop
from tilec.ir.nodes import Atomic, Block, Launch, Stmt, children, is_global, walk
from tilec.ir.nodes.barriers import Group
from tilec.lowering.analysis.uses import addressed_in, overlapping
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks


class NarrowBarriers(LaunchPass):
    """In: Sync, which orders all memory. Out: SharedSync in launches of which no thread touches what another
    one of its block writes to global memory, and none tells others anything by atomics: loads ahead stay
    under way while threads meet. Barriers of the author stay."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its barriers narrowed."""
        told = any(isinstance(stmt, Atomic) for stmt in walk(launch.body))
        if told or overlapping(launch) or any(map(is_global, addressed_in(launch.body))):
            return launch
        owners = Owners.in_launch(launch)
        found = [(own, again) for own, again in _touches(launch.body, owners, False) if own]
        if any(own.conflicts(other) for (own, _), (other, _) in permutations(found, 2)):
            return launch
        if any(again and own.conflicts(own) for own, again in found):
            return launch
        return replace(launch, body=rewrite_blocks(launch.body, _narrowed))


def _touches(block: Block, owners: Owners, again: bool) -> Iterator[tuple[Touched, bool]]:
    """What each statement of a block, those inside too, touches in global memory, and whether it does so
    more than once (``again``: the block is inside of a loop)."""
    for stmt in block:
        found = touched(stmt, owners)
        reads, writes = (frozenset(use for use in uses if is_global(use.buffer))
                         for uses in (found.reads, found.writes | found.starts))  # fmt: skip
        yield Touched(reads, writes), again
        if isinstance(stmt, (ThreadLoop, AsyncGather)):
            continue
        inside = owners.of(stmt) if isinstance(stmt, Group) else owners
        for inner in children(stmt):
            yield from _touches(inner, inside, again or isinstance(stmt, REPEATING))


def _narrowed(block: Block) -> list[Stmt]:
    return [SharedSync(loc=stmt.loc) if type(stmt) is Sync else stmt for stmt in block]
