"""Launches of which a multiprocessor holds one block for want of registers alone hold two.

A warpgroup that computes and one that loads have 128 registers a thread at launch where two blocks share a
multiprocessor, and setmaxnreg hands on what the loading one does not need. Without it the warps of two blocks
have 168 registers a thread: a scheduler has three of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import holds_product
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import BoxLoad, EachTile, WarpgroupProduct
from tilec.backends.cuda.statement_roles.rings.blocks_together import (
    LONE_THREADS,
    blocks_in_memory,
    lone_groups,
)
from tilec.backends.cuda.statement_roles.split.registers import registers_held, registers_of
from tilec.backends.cuda.warp_roles.nodes import HANDED_ON, WARPGROUP
from tilec.ir.nodes import Kernel, Launch, walk
from tilec.ir.nodes.barriers import Group, SetRegisters
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

#: Registers of a thread where nothing is handed on.
_WITHOUT = registers_of(2, LONE_THREADS)


class HoldTwoBlocks(Pass):
    """In: launches of a loading warp and one warpgroup that computes, whose fragments leave a multiprocessor
    one block. Out: those of which shared memory holds two have a loading warpgroup, which hands registers
    on."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its groups."""
        if not has_wgmma(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _shared(launch, target))


def _shared(launch: Launch, target: Target) -> Launch:
    groups = lone_groups(launch)
    if groups is None:
        return launch
    loads, computes = groups
    fewer, more = HANDED_ON[1, 2]
    asked = launch.schedule.min_blocks_per_sm
    stays = any(isinstance(stmt, EachTile) for stmt in walk(launch.body))
    brings = any(isinstance(stmt, BoxLoad) for stmt in walk(loads.body))
    if not brings or stays or asked or not _WITHOUT < registers_held(computes.body, WARPGROUP) <= more:
        return launch
    if blocks_in_memory(launch, target) < 2 or not _hold_products(computes):
        return launch
    made = {
        loads: replace(loads, count=WARPGROUP, body=(SetRegisters(fewer, False), loads)),
        computes: replace(computes, body=(SetRegisters(more, True), *computes.body)),
    }
    body = tuple(made.get(stmt, stmt) for stmt in launch.body)  # type: ignore[call-overload]
    return replace(launch, threads=(2 * WARPGROUP, 1, 1), body=body)


def _hold_products(group: Group) -> bool:
    """Whether two blocks have the registers at launch that each product wants."""
    products = (stmt for stmt in walk(group.body) if isinstance(stmt, WarpgroupProduct))
    return all(holds_product(stmt.width, 2 * 2 * WARPGROUP) for stmt in products)
