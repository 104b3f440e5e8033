"""Products and convolutions: pipelined products of loaded tiles, and their epilogue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.matmul.assign.roles import plan
from tilec.backends.cuda.matmul.emit.entry import MatmulEntry
from tilec.backends.cuda.matmul.nodes import GatherLoad, MatmulRoles, WarpgroupGemm
from tilec.backends.cuda.matmul.passes.issue_wide import IssueWide
from tilec.backends.cuda.matmul.passes.move_last_tiles import MoveLastTiles
from tilec.backends.cuda.matmul.passes.plan_ring import PlanRing
from tilec.backends.cuda.matmul.passes.select_tma import SelectTma
from tilec.backends.cuda.matmul.passes.select_wgmma import SelectWgmma
from tilec.backends.cuda.warp_roles.roads import moved, roads
from tilec.backends.cuda.warp_roles.strategy import Plan, Strategy
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES
from tilec.ir.nodes import Gemm, Pipelined, walk
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import mentioned
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.backends.cuda.launch import LoweredCudaLaunch
    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target


class Matmul(Strategy):
    """Producer warps fill one ring, consumer warpgroups share a tile of the result or take turns at tiles."""

    name = "matmul"
    roles = MatmulRoles
    passes = (PlanRing(), MoveLastTiles(), SelectTma(), SelectWgmma(), IssueWide())

    def match(self, kernel: Kernel, launch: Launch, target: Target) -> Plan | None:
        """Pipelined products with nothing between them. Of launches of one product, or none, all."""
        return plan(kernel, launch, target) if _multiplies_alone(launch) else None

    def lower(self, kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredCudaLaunch:
        """Its kernel."""
        return MatmulEntry(kernel, launch, target, marks).lower()


def _multiplies_alone(launch: Launch) -> bool:
    """Whether a launch has one product at most, or one loop, with all of its products, in which nothing takes
    what they give."""
    gemms = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined)]
    if len(gemms) < 2 or len(loops) != 1:
        return len(gemms) < 2
    sums = {gemm.c.buffer for gemm in gemms}
    read = {region.buffer for gemm in gemms for region in (gemm.a, gemm.b)}
    others = [stmt for stmt in loops[0].body if not isinstance(stmt, Gemm)]
    inside = len(loops[0].body) - len(others) == len(gemms)
    return inside and not sums & read and not any(mentioned(stmt) & sums for stmt in others)


# ---- what `explain` says of its statements ----


@roads.register(GatherLoad)
def _of_gather(stmt: GatherLoad) -> Iterator[Road]:
    count = STRIDE_BYTES // element_bytes(str(stmt.src.dtype))
    why = f"rows of {stmt.src.name} are not known to start at multiples of {STRIDE_BYTES} bytes"
    loss = Loss("tma", why, f'give the dimension of its rows a guard such as "%{count}", or pin it')
    yield moved(stmt, stmt.src, stmt.dst.buffer, "gathered", "gathered by eight warps", loss)


@roads.register(WarpgroupGemm)
def _of_product(stmt: WarpgroupGemm) -> Iterator[Road]:
    yield road_of(stmt, "wgmma", f"wgmma m{ROWS}n{stmt.tile.columns}")
