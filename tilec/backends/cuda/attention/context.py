"""What emission of a streamed launch knows beside a device context: barriers, positions in rings, staging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.warp_roles.build import cell, u32
from tilec.backends.cuda.warp_roles.map_parameters import MapParameters

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.attention.nodes import TileRing


@dataclass(frozen=True)
class SharedPlan:
    """Byte offsets in dynamic shared memory: tiles by buffer, the full barriers of each ring by tile (the
    empty ones follow), those of the ring of tile coordinates, and these; all of it."""

    tiles: Mapping[Var, int]
    barriers: Mapping[Var, int]
    orders: int
    coordinates: int
    total: int


class Position:
    """Where a role stands in a ring: the stage, and the parity of its round. Both are known ahead of use:
    what a warpgroup computes between a wait and its products holds up the tensor cores."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._stage, self._parity = cell(0), cell(0)

    @property
    def stage(self) -> Expr:
        """The number of the stage."""
        return self._stage[0] if self._stages > 1 else tirx.const(0, "int32")

    @property
    def parity(self) -> Expr:
        """0 in the first round, 1 in the second, 0 in the third, and so on."""
        return self._parity[0]

    def advance(self) -> list[tirx.Stmt]:
        """On to the next stage."""
        zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
        last = tirx.EQ(self._stage[0], tirx.const(self._stages - 1, "int32"))
        flipped = tirx.bitwise_xor(self._parity[0], one)
        if self._stages == 1:
            return [tirx.BufferStore(self._parity, flipped, [zero])]
        if self._stages == 2:
            turned = tirx.bitwise_xor(self._parity[0], self._stage[0])
            return [
                tirx.BufferStore(self._parity, turned, [zero]),
                tirx.BufferStore(self._stage, tirx.bitwise_xor(self._stage[0], one), [zero]),
            ]
        return [
            tirx.BufferStore(self._parity, tirx.Select(last, flipped, self._parity[0]), [zero]),
            tirx.BufferStore(self._stage, tirx.Select(last, zero, self._stage[0] + 1), [zero]),
        ]


@dataclass(eq=False, kw_only=True)
class StreamContext(MapParameters, DeviceContext):
    """``base`` is the address of shared memory, ``group`` the warpgroup's number and ``own`` the thread's in
    it. ``positions`` are where this role stands in each ring, by tile; ``words`` the registers of fragments
    that are held as words."""

    plan: SharedPlan
    base: Expr
    group: Expr
    own: Expr
    warpgroups: int
    maps: dict[int, Expr] = field(default_factory=dict)
    positions: dict[Var, Position] = field(default_factory=dict)
    words: dict[Var, Var] = field(default_factory=dict)

    def shared(self, tile: Var, offset: Expr | int = 0) -> Expr:
        """The shared address of a byte of a tile."""
        start = self.base + u32(self.plan.tiles[tile])
        return start if isinstance(offset, int) and offset == 0 else start + u32(offset)

    def full(self, ring: TileRing) -> Expr:
        """The barrier that the loads of the stage at hand complete."""
        return self.base + u32(self.plan.barriers[ring.tile]) + u32(self.stage(ring)) * u32(8)

    def empty(self, ring: TileRing) -> Expr:
        """The barrier that consumers of the stage at hand arrive at."""
        return self.full(ring) + u32(8 * ring.stages)

    def stage(self, ring: TileRing) -> Expr:
        """The stage at hand in this role."""
        return self.positions[ring.tile].stage

    def parity(self, ring: TileRing) -> Expr:
        """The parity of the round that this role is in."""
        return self.positions[ring.tile].parity
