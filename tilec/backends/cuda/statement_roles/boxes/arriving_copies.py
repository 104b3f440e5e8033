"""Copies of a group of threads, which arrives at a barrier behind them, are loads that complete there.

group(256, 128): copy(A[...], As); barrier_arrive(full[0])
->
group(256, 128): bulk_load(A[...], As, full[0]); barrier_arrive(full[0])

TMA brings them, where they are boxes: the barrier then counts their bytes beside the author's arrivals, and
no thread of the group waits for memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.limits import has_tma
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Bind,
    Block,
    Copy,
    Kernel,
    Launch,
    Stmt,
    children,
    is_global,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Arrive, BulkLoad, Group, WaitPhase
from tilec.ir.traits import buffers
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

    from tilec.targets import Target


class ArrivingCopies(Pass):
    """In: launches with groups that their author gives. Out: their copies from tensors to shared tiles in
    front of an arrival are BulkLoads of its barrier, where the group does nothing else with the tile and all
    others wait for that barrier in front of what they do with it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loads."""
        return rewrite_launches(kernel, _arriving) if has_tma(target) else kernel


def _arriving(launch: Launch) -> Launch:
    return replace(launch, body=tuple(_told(stmt, launch) for stmt in launch.body))


def _told(stmt: Stmt, launch: Launch) -> Stmt:
    if not isinstance(stmt, Group):
        return stmt
    others = tuple(each for each in launch.body if each is not stmt)
    return replace(stmt, body=_block(stmt.body, stmt, others))


def _block(block: Block, group: Group, others: Block) -> Block:
    """A block that all threads of a group run: each copy tells of the next arrival, if nothing but copies and
    names stands between."""
    made: list[Stmt] = []
    arrival: Arrive | None = None
    for stmt in reversed(block):
        if isinstance(stmt, Arrive):
            arrival = stmt if stmt.block is None else None
        elif isinstance(stmt, Copy) and arrival is not None and _is_load(stmt):
            if _is_handed_on(stmt, arrival, group, others):
                stmt = BulkLoad(
                    stmt.src, stmt.dst, arrival.barrier, arrival.index, False, stmt.hints, loc=stmt.loc
                )
        elif not isinstance(stmt, Bind):
            arrival = None
        if isinstance(stmt, LOOPS):
            stmt = with_children(stmt, [_block(inner, group, others) for inner in children(stmt)])
        made.append(stmt)
    return tuple(made[::-1])


def _is_load(copy: Copy) -> bool:
    src, dst = copy.src.buffer, copy.dst.buffer
    return is_global(src) and dst.scope().startswith("shared") and str(src.dtype) == str(dst.dtype)


def _is_handed_on(copy: Copy, arrival: Arrive, group: Group, others: Block) -> bool:
    """Whether all that is done with a copy's tile comes behind a wait for the arrival's barrier."""
    tile = copy.dst.buffer
    own = [stmt for stmt in walk(group.body) if tile in buffers(stmt)]
    if any(not isinstance(stmt, Copy) or stmt.src.buffer.same_as(tile) for stmt in own):
        return False
    return not any(_uses_early(others, tile, {arrival.barrier}))


def _uses_early(block: Block, tile: Var, barriers: Set[Var]) -> Iterator[Stmt]:
    """The statements of a block that name a tile and have no wait for one of ``barriers`` in front of them,
    in their block or around it."""
    for stmt in block:
        if isinstance(stmt, WaitPhase) and stmt.barrier in barriers:
            return
        if tile in buffers(stmt) and not isinstance(stmt, Alloc):
            yield stmt
        for inner in children(stmt):
            yield from _uses_early(inner, tile, barriers)
