"""Launches of one warpgroup that computes have as many blocks on a multiprocessor as shared memory holds.

Such blocks wait in turn: for memory, for products, for warps of their own. A compiler that is not told how
many there are uses registers to ask for more at once, and leaves room for fewer. Decoding from a cache of
8-bit integers takes 219 us for 256 with four blocks of 95 registers a thread for three of 121 (H200).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import registers_of_product
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import WarpgroupProduct
from tilec.backends.cuda.statement_roles.rings.blocks_together import (
    LONE_THREADS,
    blocks_in_memory,
    blocks_with_registers,
    lone_groups,
)
from tilec.backends.cuda.statement_roles.split.registers import registers_of
from tilec.ir.nodes import Kernel, Launch, walk
from tilec.lowering.passes.base import Pass, rewrite_launches

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
    groups = lone_groups(launch)
    if groups is None or launch.schedule.min_blocks_per_sm:
        return launch
    _, computes = groups
    blocks = blocks_in_memory(launch, target)
    if blocks < 2 or blocks_with_registers(computes, blocks) < blocks:
        return launch
    products = (stmt for stmt in walk(computes.body) if isinstance(stmt, WarpgroupProduct))
    if any(registers_of_product(stmt.width) > registers_of(blocks, LONE_THREADS) for stmt in products):
        return launch
    return replace(launch, schedule=replace(launch.schedule, min_blocks_per_sm=blocks))
