"""What emission of attention knows beside the roles: where a role stands in each ring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.build import u32
from tilec.backends.cuda.warp_roles.context import RoleContext
from tilec.backends.cuda.warp_roles.position import Position

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.attention.nodes import TileRing


@dataclass(eq=False, kw_only=True)
class AttentionContext(RoleContext):
    """``positions`` are where this role stands in each ring, by tile."""

    positions: dict[Var, Position] = field(default_factory=dict)

    def full(self, ring: TileRing) -> Expr:
        """The barrier that the loads of the stage at hand complete."""
        return self.named_place(ring.tile) + u32(self.stage(ring)) * u32(8)

    def empty(self, ring: TileRing) -> Expr:
        """The barrier that consumers of the stage at hand arrive at."""
        return self.full(ring) + u32(8 * ring.stages)

    def stage(self, ring: TileRing) -> Expr:
        """The stage at hand in this role."""
        return self.positions[ring.tile].stage

    def parity(self, ring: TileRing) -> Expr:
        """The parity of the round that this role is in."""
        return self.positions[ring.tile].parity
