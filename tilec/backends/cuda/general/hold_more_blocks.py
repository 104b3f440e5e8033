"""Launches of one warpgroup that computes have as many blocks on a multiprocessor as shared memory holds.

Such blocks wait in turn: for memory, for products, for warps of their own. A compiler that is not told how
many there are uses registers to ask for more at once, and leaves room for fewer. Decoding from a cache of
8-bit integers takes 219 us for 256 with four blocks of 95 registers a thread for three of 121 (H200).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.threads import thread_count
from tilec.backends.cuda.analysis.wgmma import registers_of_product
from tilec.backends.cuda.general.registers import registers_held, registers_of
from tilec.backends.cuda.limits import gpu_limits, has_wgmma
from tilec.backends.cuda.nodes import REPEATING, WarpgroupProduct
from tilec.backends.cuda.passes.place_shared import pool_plan
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.nodes import Kernel, Launch, children, walk
from tilec.ir.nodes.barriers import WARP, Group
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.targets import SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tilec.targets import Target


class HoldMoreBlocks(Pass):
    """In: launches of a loading warp and one warpgroup that computes. Out: those whose fragments leave it to
    shared memory how many blocks a multiprocessor holds are compiled for that many."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its launches' blocks."""
        if not has_wgmma(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _held(launch, target))


def _held(launch: Launch, target: Target) -> Launch:
    group = computing_alone(launch)
    if group is None or launch.schedule.min_blocks_per_sm:
        return launch
    taken = pool_plan(launch).total + SYSTEM_SHARED_BYTES
    blocks, threads = gpu_limits(target, {}).shared_bytes // taken, thread_count(launch)
    if blocks < 2 or blocks_with_registers(group, blocks, threads) < blocks:
        return launch
    products = (stmt for stmt in walk(group.body) if isinstance(stmt, WarpgroupProduct))
    if any(registers_of_product(stmt.width) > registers_of(blocks, threads) for stmt in products):
        return launch
    return replace(launch, schedule=replace(launch.schedule, min_blocks_per_sm=blocks))


def computing_alone(launch: Launch) -> Group | None:
    """The one warpgroup that computes beside a warp that loads; None in other launches."""
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group)]
    alone = [group.count for group in groups] == [WARP, WARPGROUP]
    return groups[1] if alone and thread_count(launch) == WARPGROUP + WARP else None


def blocks_with_registers(group: Group, most: int, threads: int) -> int:
    """How many blocks, up to ``most``, leave the trips of a group's loops registers enough; one at least."""
    loops = (stmt for stmt in walk(group.body) if isinstance(stmt, REPEATING))
    needed = max((registers_held(body, group.count) for loop in loops for body in children(loop)), default=0)
    return next((count for count in range(most, 1, -1) if needed <= registers_of(count, threads)), 1)
