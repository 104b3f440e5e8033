"""What emission of attention knows beside the roles: where a role stands in each ring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.emit.context import RoleContext
from tilec.backends.cuda.warp_roles.emit.position import Position

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.attention.nodes import TileRing


@dataclass(eq=False, kw_only=True)
class AttentionContext(RoleContext):
    """``positions`` are where this role stands in each ring, by tile, ``halves`` the pairs that become words
    of 8-bit operands; the other operands of products with those of ``in_order`` are turned to fit them."""

    positions: dict[Var, Position] = field(default_factory=dict)
    halves: dict[Var, Var] = field(default_factory=dict)
    in_order: set[Var] = field(default_factory=set)

    def full(self, ring: TileRing) -> Expr:
        """The barrier that the loads of the stage at hand complete."""
        return self.barriers(ring.tile, ring.stages).full(self.stage(ring))

    def empty(self, ring: TileRing) -> Expr:
        """The barrier that consumers of the stage at hand arrive at."""
        return self.barriers(ring.tile, ring.stages).empty(self.stage(ring))

    def stage(self, ring: TileRing) -> Expr:
        """The stage at hand in this role."""
        return self.positions[ring.tile].stage
