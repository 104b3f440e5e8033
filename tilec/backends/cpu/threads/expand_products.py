"""Products and loads of fragments as shuffles."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.analysis.threads.fragments import expanded
from tilec.ir.nodes import Block, Launch, Stmt, walk
from tilec.ir.nodes.threads import LANE_PRODUCTS, LaneMma
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

_LANES = "loops over lanes that exchange elements"
_REMEDY = "use T.gemm, which CPUs have as register blocks"


class ExpandLaneProducts(LaunchPass):
    """In: LaneMma, LaneLoad. Out: none of them; each is the shuffles and the arithmetic of its lanes."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without them."""
        roads = [_road(stmt) for stmt in walk(launch.body) if isinstance(stmt, LaneMma)]
        return with_roads(replace(launch, body=rewrite_blocks(launch.body, _expand_block)), roads)


def _road(stmt: LaneMma) -> Road:
    loss = Loss("microkernel", f"{stmt.instruction} is an instruction of GPUs", _REMEDY)
    return road_of(stmt, "lanes", _LANES, loss)


def _expand_block(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in (expanded(stmt) if isinstance(stmt, LANE_PRODUCTS) else (stmt,))]
