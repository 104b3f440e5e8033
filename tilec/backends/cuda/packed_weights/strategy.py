"""Products of packed weights: a pipelined product whose first operand is converted in registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.packed_weights.assign import plan
from tilec.backends.cuda.packed_weights.entry import PackedEntry
from tilec.backends.cuda.packed_weights.match import is_candidate
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.warp_roles.roads import roads
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch
    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target


class PackedWeights(Strategy):
    """One warp loads packed bytes, the others make operands of them."""

    name = "packed_weights"
    roles = PackedProduct
    passes = ()

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """One pipelined product whose first operand a loop of arithmetic makes."""
        return plan(kernel, launch, target) if is_candidate(launch) else None

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredCudaLaunch:
        """Its kernel."""
        return PackedEntry(kernel, launch, target, marks).lower()


# ---- what `explain` says of its statements ----


@roads.register(PackedProduct)
def _of_product(stmt: PackedProduct) -> Iterator[Road]:
    kind = "mma.sync" if stmt.slices else "wgmma"
    yield road_of(stmt, kind, f"{kind} on weights of {stmt.packing.width} bits converted in registers")
