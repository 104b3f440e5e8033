"""Kernels whose author splits warps into producers and consumers, as the loops that they are made of.

A ring of stages that one group fills and another one multiplies is one pipelined loop: run in turns, without
barriers and stages, it is a launch like any other, and gets the roles that suit the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.trips.peeled_trips import with_first_trips
from tilec.backends.cuda.analysis.trips.ring_tiles import OneStage, asks_for_no_stages, is_one_stage
from tilec.backends.cuda.warp_roles.twin_groups import with_joined_twins
from tilec.errors import CompileError, UnsupportedError
from tilec.ir.analysis.threads.counters import counted_once
from tilec.ir.analysis.threads.in_order import in_order
from tilec.ir.exprs import inlined, int_value, same
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.nodes.barriers import BulkLoad, Group
from tilec.ir.traits import buffers, loads_of, regions
from tilec.lowering.analysis.accesses import computed_values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite

if TYPE_CHECKING:
    from tvm.ir import Var

#: Stages of a loop whose author has one buffer.
_STAGES = 2
_NOTE = "groups of warps, their barriers and registers are those that tilec chooses"


def without_groups(kernel: Kernel, launch: Launch) -> Launch | None:
    """A launch with groups as one without them and their barriers; None for others, and where there is no
    such form."""
    if not any(isinstance(stmt, (Group, BulkLoad)) for stmt in walk(launch.body)):
        return None
    launch = with_joined_twins(launch)
    around = tuple(stmt for stmt in kernel.body if not isinstance(stmt, Launch))
    threads = _multiplying(launch)
    try:
        (made,) = in_order(replace(kernel, body=(*around, launch)), together=True).launches
    except (UnsupportedError, CompileError):
        return None
    if made.thread_vars or not threads:
        return None
    whole = with_first_trips(counted_once(made.body), ScopedRewrite(kernel, launch).facts)
    body = counted_once(_pipelined(whole))
    return with_notes(replace(made, body=body, threads=(threads, 1, 1)), [_NOTE])


def _multiplying(launch: Launch) -> int:
    """How many threads multiply."""
    spans = {
        (stmt.first, stmt.count)
        for stmt in walk(launch.body)
        if isinstance(stmt, Group) and any(isinstance(inner, Gemm) for inner in walk(stmt.body))
    }
    return sum(count for _, count in spans)


def _pipelined(body: Block) -> Block:
    """``body`` whose loops over loads and products are pipelined, over tiles of one stage."""
    stages = {
        stmt.buffer: found
        for stmt in walk(body)
        if isinstance(stmt, Alloc) and (found := _stages(stmt.buffer, body)) is not None
    }
    return _Stages(stages).block(body)


def _stages(tile: Var, body: Block) -> int | None:
    """The stages of a tile whose first axis counts them: whatever names it names one stage, the same one in
    all of a trip, which the trip fills first. None for any other tile."""
    if tile.scope() != "shared.dyn" or len(tile.shape) < 3:
        return None
    users = [stmt for stmt in walk(body) if any(tile.same_as(name) for name in buffers(stmt))]
    if not users or any(load.source.same_as(tile) for load in loads_of(*users)):
        return None
    named = [region for stmt in users for region in regions(stmt) if region.buffer.same_as(tile)]
    names = computed_values_of(walk(body))
    stages = [inlined(region.start[0], names) for region in named]
    first = users[0]
    fills = isinstance(first, Copy) and first.dst.buffer.same_as(tile) and is_one_stage(first.dst)
    alike = all(
        int_value(region.extent[0]) == 1 and same(stage, stages[0])
        for region, stage in zip(named, stages, strict=True)
    )
    return int_value(tile.shape[0]) if fills and alike and _around(body, users) else None


def _around(body: Block, users: list[Stmt]) -> bool:
    """Whether all ``users`` stand in one loop."""
    loops = [stmt for stmt in walk(body) if isinstance(stmt, (For, Pipelined))]
    return any(all(any(user is inner for inner in walk(loop.body)) for user in users) for loop in loops)


class _Stages(OneStage):
    """Takes the stages out of tiles, and gives them to the loops that fill them."""

    def __init__(self, stages: dict[Var, int]) -> None:
        super().__init__(stages)
        self._stages = stages

    def stmt(self, stmt: Stmt) -> Stmt:
        """A rewritten statement."""
        loop = stmt if isinstance(stmt, (For, Pipelined)) else None
        if loop is None or not _is_straight(loop) or not _loads_and_multiplies(loop):
            return super().stmt(stmt)
        inner = [self._stages.get(name, _STAGES) for part in loop.body for name in _filled(part)]
        body = self.block(loop.body)
        return Pipelined(loop.var, loop.start, loop.stop, body, max(inner, default=_STAGES), loc=loop.loc)


def _filled(stmt: Stmt) -> Iterator[Var]:
    if isinstance(stmt, Copy) and stmt.dst.buffer.scope() == "shared.dyn":
        yield stmt.dst.buffer


def _is_straight(loop: For | Pipelined) -> bool:
    """Whether a loop counts by one and asks for no stages: its author has written them down as buffers."""
    if isinstance(loop, Pipelined):
        return asks_for_no_stages(loop)
    return int_value(loop.step) == 1


def _loads_and_multiplies(loop: For | Pipelined) -> bool:
    """Whether a loop fills shared tiles and multiplies."""
    fills = any(True for stmt in loop.body for _ in _filled(stmt))
    return fills and any(isinstance(stmt, Gemm) for stmt in walk(loop.body))
