"""Products and loads of fragments as shuffles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.ir.analysis.fragments import expanded
from tilec.ir.nodes import Block, Kernel, Launch, Stmt, walk
from tilec.ir.nodes.threads import LANE_PRODUCTS, LaneMma
from tilec.ir.roads import Loss
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


_LANES = "loops over lanes that exchange elements"
_LOSS = Loss(
    "microkernel", "T.ptx_mma is an instruction of GPUs", "use T.gemm, which CPUs have as register blocks"
)


@dataclass(frozen=True)
class ExpandLaneProducts:
    """In: LaneMma, LaneLoad. Out: none of them; each is the shuffles and the arithmetic of its lanes."""

    name: str = "expand_lane_products"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without them."""
        return rewrite_launches(kernel, _expanded)


def _expanded(launch: Launch) -> Launch:
    roads = [road_of(stmt, "lanes", _LANES, _LOSS) for stmt in walk(launch.body) if isinstance(stmt, LaneMma)]
    return with_roads(replace(launch, body=rewrite_blocks(launch.body, _expand_block)), roads)


def _expand_block(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in (expanded(stmt) if isinstance(stmt, LANE_PRODUCTS) else (stmt,))]
