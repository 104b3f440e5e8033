"""Products and convolutions: one pipelined product of loaded tiles, and its epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tilec.backends.cuda.matmul.roads  # noqa: F401  (registers the roads of statements)
from tilec.backends.cuda.matmul.assign import plan
from tilec.backends.cuda.matmul.entry import MatmulEntry
from tilec.backends.cuda.matmul.nodes import MatmulRoles
from tilec.backends.cuda.matmul.plan_ring import PlanRing
from tilec.backends.cuda.matmul.select_tma import SelectTma
from tilec.backends.cuda.matmul.select_wgmma import SelectWgmma
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.lowering.lowered import LoweredLaunch
    from tilec.targets import Target


class Matmul(Strategy):
    """Producer warps fill one ring, consumer warpgroups share a tile of the result or take turns at tiles."""

    name = "matmul"
    roles = MatmulRoles
    passes = (PlanRing(), SelectTma(), SelectWgmma())

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """One pipelined product."""
        return plan(kernel, launch, target)

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
        """Its kernel."""
        return MatmulEntry(kernel, launch, target, marks).lower()
