"""Runs the blocks of a cluster: groups take turns, each until it must wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilec.emulate.group import Block, Cluster, Fork, Group, Program
from tilec.emulate.instructions.clusters import settle
from tilec.emulate.instructions.tma import check_end
from tilec.emulate.state.clocks import Hazard
from tilec.emulate.state.registers import Registers

#: Steps of one group without a wait, after which it counts as running for ever.
MOST_STEPS = 2_000_000


class Stuck(Hazard):
    """No group can go on; ``groups`` are those that wait."""

    def __init__(self, groups: Sequence[Group]) -> None:
        super().__init__("no warp can go on", remedy="something that they wait for never happens")
        self.groups = list(groups)


class Stopped(Exception):
    """A hazard with the group that met it."""

    def __init__(self, hazard: Exception, group: Group) -> None:
        super().__init__(str(hazard))
        self.hazard, self.group = hazard, group


def run_cluster(cluster: Cluster, program: Program) -> None:
    """Runs all warps of a cluster to their end. Stopped for a hazard; Stuck where all that are left wait."""
    groups = [_first_group(block, program) for block in cluster.blocks]
    while groups:
        left, moved = [], False
        for group in groups:
            made, progress = _turn(group)
            moved |= progress
            left += made
        if not moved:
            raise Stuck(left)
        groups = left


def _first_group(block: Block, program: Program) -> Group:
    threads = np.arange(block.warps * 32)
    group = Group(block, program, threads)
    if block.count < len(threads):
        raise Hazard(f"a block of {block.count} threads, which is no multiple of 32")
    group.env = [None] * program.slots
    group.local = [
        Registers(each.name, each.size, each.dtype, len(threads), group.taint) for each in program.locals
    ]
    group.inv = program.invariants(group)
    return group


def _end(group: Group) -> None:
    """The warps of a group have ended."""
    block = group.block
    block.cluster.ended |= {int(warp) for warp in group.warps}
    settle(block.cluster)
    if block.has_ended:
        check_end(block)


def _still_waits(group: Group, waiting: Iterator[str]) -> bool:
    """Whether a group goes on waiting, and why; else it comes to the next step."""
    why = next(waiting, None)
    if why is None:
        group.waiting = None
        group.pc += 1
        return False
    group.why = why
    return True


def _turn(group: Group) -> tuple[list[Group], bool]:
    """Runs a group until it waits or ends: the groups that are left of it, and whether anything happened."""
    steps, end = group.program.steps, len(group.program.steps)
    moved = False
    for _ in range(MOST_STEPS):
        try:
            if group.waiting is not None:
                if _still_waits(group, group.waiting):
                    return [group], moved
            elif group.pc >= end:
                _end(group)
                return [], True
            else:
                steps[group.pc].run(group)
        except Fork as fork:
            group.waiting = None
            return [group.part(lanes) for lanes in fork.parts], True
        except (Hazard, ArithmeticError, IndexError, ValueError, TypeError) as problem:
            raise Stopped(problem, group) from problem
        moved = True
    raise Stopped(Hazard(f"a warp has run {MOST_STEPS} steps without a wait"), group)
