"""Blocks that a multiprocessor holds together, of launches with one warp that loads and one warpgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.nodes import REPEATING
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.statement_roles.split.registers import registers_live, registers_of
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.nodes import Launch, children, walk
from tilec.ir.nodes.barriers import WARP, Group
from tilec.targets import SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tilec.targets import Target

#: Threads of such a launch.
LONE_THREADS = WARP + WARPGROUP


def lone_groups(launch: Launch) -> tuple[Group, Group] | None:
    """The warp that loads and the warpgroup that computes; None in other launches."""
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group)]
    if [group.count for group in groups] != [WARP, WARPGROUP] or thread_count(launch) != LONE_THREADS:
        return None
    return groups[0], groups[1]


def blocks_in_memory(launch: Launch, target: Target) -> int:
    """How many blocks of a launch, of any groups, the shared memory of a multiprocessor holds."""
    return gpu_limits(target, {}).shared_bytes // (pool_plan(launch).total + SYSTEM_SHARED_BYTES)


def blocks_with_registers(group: Group, most: int) -> int:
    """How many blocks, up to ``most``, leave the trips of the loops of the ``group`` that computes registers
    enough; one at least."""
    loops = (stmt for stmt in walk(group.body) if isinstance(stmt, REPEATING))
    needed = max((registers_live(body, group) for loop in loops for body in children(loop)), default=0)
    return next((count for count in range(most, 1, -1) if needed <= registers_of(count, LONE_THREADS)), 1)
