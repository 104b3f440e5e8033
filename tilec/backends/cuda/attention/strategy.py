"""Attention: several products in one pipelined loop, whose rows stay in registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.attention.assign.roles import plan
from tilec.backends.cuda.attention.emit.entry import AttentionEntry
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, BoxStore
from tilec.backends.cuda.attention.passes.defer_sums import DeferSums
from tilec.backends.cuda.attention.passes.find_masks import FindMasks
from tilec.backends.cuda.attention.passes.overlap_products import OverlapProducts
from tilec.backends.cuda.attention.passes.place_waits import PlaceWaits
from tilec.backends.cuda.attention.passes.plan_rings import PlanTileRings
from tilec.backends.cuda.attention.passes.read_beside import ReadBeside
from tilec.backends.cuda.attention.passes.split_masks import SplitMasks
from tilec.backends.cuda.attention.passes.vote_on_masks import VoteOnMasks
from tilec.backends.cuda.statement_roles.operands.join_second_operands import joined
from tilec.backends.cuda.warp_roles.roads import moved, roads
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy
from tilec.ir.nodes import Gemm, walk
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch
    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target


class Attention(Strategy):
    """A producer warp fills rings of tiles, consumer warpgroups own 64 rows of every fragment each."""

    name = "attention"
    roles = AttentionRoles
    passes = (
        FindMasks(),
        DeferSums(),
        OverlapProducts(),
        SplitMasks(),
        VoteOnMasks(),
        ReadBeside(),
        PlanTileRings(),
        PlaceWaits(),
    )

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """Products whose results others take from registers."""
        products = sum(isinstance(stmt, Gemm) for stmt in walk(launch.body))
        if products < 2 or joined(kernel, launch, target) is not launch:
            return None
        return plan(kernel, launch, target)

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredCudaLaunch:
        """Its kernel."""
        return AttentionEntry(kernel, launch, target, marks).lower()


# ---- what `explain` says of its statements ----


@roads.register(AsyncProduct)
def _of_product(stmt: AsyncProduct) -> Iterator[Road]:
    yield road_of(stmt, "wgmma", f"wgmma m{ROWS}n{stmt.columns}")


@roads.register(BoxStore)
def _of_store(stmt: BoxStore) -> Iterator[Road]:
    yield moved(stmt, stmt.src.buffer, stmt.map.buffer, "tma", "TMA stores")
