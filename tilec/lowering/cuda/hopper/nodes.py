"""Statements of warp-specialised launches.

Specialised = producer warps fill rings, consumer warpgroups empty them
RingFill    = (wait for a free stage, announce its bytes, TmaLoad*) per trip
RingDrain   = (wait for a full stage, WarpgroupGemm, give back the stage before) per trip
TileStore   = accumulator -> arithmetic -> staging buffer -> TMA, or -> global memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.nodes import Block, Region, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class TensorMap:
    """How TMA sees a global buffer: ``box`` elements per axis move at once; ``swizzle`` is the width in bytes
    of the XOR pattern of their shared image, 0 for none."""

    buffer: Var
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class Roles:
    """``consumers`` warpgroups compute, one more moves data; ``registers`` are those of a producer and of a
    consumer thread after setmaxnreg, None where all keep what they have at launch."""

    consumers: int
    registers: tuple[int, int] | None

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return 128 * (self.consumers + 1)

    @property
    def entry_registers(self) -> int:
        """Registers that each thread must have at launch: setmaxnreg waits for ever for more than the block
        got. 0 where nothing is redistributed."""
        if self.registers is None:
            return 0
        producer, consumer = self.registers
        return (producer + consumer * self.consumers) // (self.consumers + 1)


@dataclass(frozen=True)
class TileOrder:
    """A persistent grid: each block takes every gridDim-th tile. Tiles are walked in bands: ``band`` of them
    along grid axis ``axis`` before the other axis moves, so that a wave of blocks shares operands in L2.
    ``pair``: the grid axis along which two neighbours form a cluster, None without clusters."""

    axis: int
    band: int
    pair: int | None = None

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return 1 if self.pair is None else 2


@dataclass(frozen=True)
class Ring:
    """``stages`` slots of ``bytes`` each, with one full and one empty barrier per slot; the phases run on
    from one tile to the next."""

    stages: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Specialised(Stmt):
    """The body of a launch whose warps have roles. Both blocks run once per tile."""

    roles: Roles
    order: TileOrder
    producer: Block
    consumer: Block

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside (`tilec.ir.nodes.children`)."""
        return (self.producer, self.consumer)


@dataclass(frozen=True, eq=False)
class RingFill(Stmt):
    """``for var in range(start, stop)``: the loads of ``body`` go to the next free ``stage``."""

    ring: Ring
    stage: Var
    var: Var
    start: Expr
    stop: Expr
    body: Block

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside (`tilec.ir.nodes.children`)."""
        return (self.body,)


@dataclass(frozen=True, eq=False)
class RingDrain(Stmt):
    """As many trips as the fill: the products of ``body`` read the next full ``stage``. Afterwards the
    accumulator holds the sum of all trips (zero for none)."""

    ring: Ring
    stage: Var
    trips: Expr
    body: Block

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside (`tilec.ir.nodes.children`)."""
        return (self.body,)


@dataclass(frozen=True, eq=False)
class TmaLoad(Stmt):
    """``dst`` (one version of a tile) = the map's buffer from ``start`` on; zeros outside of it. Boxes of
    128 bytes follow one another along the last axis of the tile. ``shared``: both blocks of a cluster want
    the same, so that each brings half of the rows to both."""

    map: TensorMap
    start: tuple[Expr, ...]
    dst: Region
    shared: bool = False


@dataclass(frozen=True, eq=False)
class WarpgroupTile:
    """One warpgroup's share of a product: ``rows`` instructions of 64 rows, each ``columns`` wide, ``steps``
    of 32 bytes along K per stage. ``types`` are those in the instruction's name."""

    rows: int
    columns: int
    steps: int
    types: str


@dataclass(frozen=True, eq=False)
class WarpgroupGemm(Stmt):
    """``c += op(a) @ op(b)`` by wgmma, asynchronously; operands as in `tilec.ir.nodes.Gemm`."""

    a: Region
    b: Region
    c: Region
    trans_a: bool
    trans_b: bool
    tile: WarpgroupTile


@dataclass(frozen=True, eq=False)
class TileStore(Stmt):
    """For every (i, j) of the accumulator's tile: ``body`` (Store and Bind statements), in the registers of
    the thread that holds the element. ``rows`` are those of one warpgroup. ``map`` is set where the last
    store goes through ``buffers`` staging buffers of ``columns`` columns and TMA."""

    vars: tuple[Var, ...]
    extents: tuple[int, ...]
    rows: int
    body: Block
    map: TensorMap | None = None
    columns: int = 0
    buffers: int = 0

    @property
    def staging_bytes(self) -> int:
        """Bytes of staging buffers for one warpgroup; elements have 16 bits."""
        return self.buffers * self.rows * self.columns * 2

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside (`tilec.ir.nodes.children`)."""
        return (self.body,)
