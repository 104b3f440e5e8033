"""Registers that authors hand on from one group of warps to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.limits import hands_registers_on
from tilec.ir.analysis.threads.groups import asks_in_vain
from tilec.ir.nodes import Block, Kernel, Launch, walk
from tilec.ir.nodes.barriers import WARPGROUP, Group, SetRegisters
from tilec.lowering.analysis.roads import with_roads
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.targets import MOST_REGISTERS, registers_of_a_thread

if TYPE_CHECKING:
    from tilec.targets import Target


class ShareRegisters(Pass):
    """In: SetRegisters anywhere. Out: those of launches whose warpgroups say once each, at the head of code
    of their own, how many they take, and come out with what a block has (setmaxnreg would wait for ever for
    more); others are said to be in vain."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with what it can obey."""
        return rewrite_launches(kernel, lambda launch: _shared(launch, target))


def _shared(launch: Launch, target: Target) -> Launch:
    wishes = [stmt for stmt in walk(launch.body) if isinstance(stmt, SetRegisters)]
    reason = _against(launch, wishes, target) if wishes else None
    if reason is None:
        return launch
    roads = [asks_in_vain(stmt, reason) for stmt in wishes]
    return with_roads(replace(launch, body=rewrite_blocks(launch.body, _without)), roads)


def _without(block: Block) -> Block:
    return tuple(stmt for stmt in block if not isinstance(stmt, SetRegisters))


def _against(launch: Launch, wishes: list[SetRegisters], target: Target) -> str | None:
    """Why registers cannot be handed on as a launch asks; None where they can."""
    if not hands_registers_on(target):
        return f"{target.name} does not hand registers on"
    threads = thread_count(launch)
    own = registers_of_a_thread(threads)
    if own == MOST_REGISTERS:
        return f"each of {threads} threads has as many registers as it can use"
    given = list(_given(launch))
    groups = sorted(first for first, _ in given)
    if {stmt for _, stmt in given} != set(wishes) or groups != list(range(0, threads, WARPGROUP)):
        return "not every warpgroup says once, in T.ws outside of loops, how many it takes"
    counts = [stmt.count for _, stmt in given]
    if any(stmt.count < own if stmt.more else stmt.count > own for _, stmt in given):
        return f"threads of this launch begin with {own} registers"
    if sum(counts) > own * len(counts):
        return f"{' + '.join(map(str, counts))} registers are more than {len(counts)} x {own}"
    return None


def _given(launch: Launch) -> Iterator[tuple[int, SetRegisters]]:
    """What warpgroups ask for in code of their own: the first thread of each, and its wish."""
    for group in launch.body:
        if not isinstance(group, Group) or group.first % WARPGROUP or group.count % WARPGROUP:
            continue
        for stmt in group.body:
            if isinstance(stmt, SetRegisters):
                yield from ((group.first + start, stmt) for start in range(0, group.count, WARPGROUP))
