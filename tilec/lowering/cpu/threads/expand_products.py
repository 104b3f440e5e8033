"""Products and loads of fragments as shuffles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.fragments import expanded
from tilec.ir.nodes import Block, Kernel, Stmt
from tilec.ir.threads import LANE_PRODUCTS
from tilec.lowering.passes import rewrite_launch_blocks

if TYPE_CHECKING:
    from tilec.targets import Target


@dataclass(frozen=True)
class ExpandLaneProducts:
    """In: LaneMma, LaneLoad. Out: none of them; each is the shuffles and the arithmetic of its lanes."""

    name: str = "expand_lane_products"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without them."""
        return rewrite_launch_blocks(kernel, _expand_block)


def _expand_block(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in (expanded(stmt) if isinstance(stmt, LANE_PRODUCTS) else (stmt,))]
