"""Attention: several products in one pipelined loop, whose rows stay in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tilec.backends.cuda.attention.roads  # noqa: F401  (registers the roads of statements)
from tilec.backends.cuda.attention.assign import plan
from tilec.backends.cuda.attention.defer_sums import DeferSums
from tilec.backends.cuda.attention.entry import AttentionEntry
from tilec.backends.cuda.attention.find_masks import FindMasks
from tilec.backends.cuda.attention.nodes import AttentionRoles
from tilec.backends.cuda.attention.overlap_products import OverlapProducts
from tilec.backends.cuda.attention.place_waits import PlaceWaits
from tilec.backends.cuda.attention.plan_rings import PlanTileRings
from tilec.backends.cuda.attention.split_masks import SplitMasks
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy
from tilec.ir.nodes import Gemm, walk

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.lowering.lowered import LoweredLaunch
    from tilec.targets import Target


class Attention(Strategy):
    """A producer warp fills rings of tiles, consumer warpgroups own 64 rows of every fragment each."""

    name = "attention"
    roles = AttentionRoles
    passes = (FindMasks(), DeferSums(), OverlapProducts(), SplitMasks(), PlanTileRings(), PlaceWaits())

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """Products whose results others take from registers."""
        products = sum(isinstance(stmt, Gemm) for stmt in walk(launch.body))
        return plan(kernel, launch, target) if products > 1 else None

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
        """Its kernel."""
        return AttentionEntry(kernel, launch, target, marks).lower()
