"""Products of packed weights: a pipelined product whose first operand is converted in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tilec.backends.cuda.packed_weights.roads  # noqa: F401  (registers the road of a product)
from tilec.backends.cuda.packed_weights.assign import plan
from tilec.backends.cuda.packed_weights.entry import PackedEntry
from tilec.backends.cuda.packed_weights.match import is_candidate
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.lowering.lowered import LoweredLaunch
    from tilec.targets import Target


class PackedWeights(Strategy):
    """One warp loads packed bytes, the others make operands of them."""

    name = "packed_weights"
    roles = PackedProduct
    passes = ()

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """One pipelined product whose first operand a loop of arithmetic makes."""
        return plan(kernel, launch, target) if is_candidate(launch) else None

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
        """Its kernel."""
        return PackedEntry(kernel, launch, target, marks).lower()
