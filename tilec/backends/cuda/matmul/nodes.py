"""Statements of products whose warps have roles.

MatrixView  = another name for a tensor, as a matrix
RowsView    = one as a matrix of groups of rows, of which loads bring one of each
WindowCopy  = a tile of an image's columns, before it is a TmaLoad
MatmulRoles = producer warps fill a ring, consumer warpgroups empty it
RingFill    = (wait for a free stage, announce its bytes, (TmaLoad | GatherLoad)*) per trip
RingDrain   = (wait for a full stage, (WarpgroupGemm | SideBySide)*, give back the stage before) per trip
ClearFront  = zeros in front of the rows of a tile's first stage
SumParts    = the parts of a sum that the blocks of a cluster hold, added
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.nodes import Ring, Roles, WarpgroupTile, Window
from tilec.ir.stmt import At, Block, Defines, Region, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class MatrixView(Stmt):
    """``view`` names the memory of the parameter ``root``, which is contiguous, as a matrix."""

    view: Defines[Buffer]
    root: Buffer


@dataclass(frozen=True, eq=False)
class RowsView(MatrixView):
    """``view`` has a row for every few rows of the matrix ``root``, the last one perhaps for fewer: what they
    would be behind those is no memory. Loads bring of each group what belongs to its row ``part``: zeros
    behind its end and in place of groups that have no such row, and zeros for the ``front`` elements, fewer
    than 16 bytes, that a tile's first trip brings of the row in front of it."""

    part: Expr
    front: Expr


@dataclass(frozen=True, eq=False)
class WindowCopy(Stmt):
    """``dst[p, q]`` = channel q from ``src`` on of the p-th pixel of ``window`` from the one at ``src`` on,
    moved by ``offsets``; zeros outside of the image. Pixels follow one another in row-major order, those of
    the next image behind the last one. ``src`` has the axes of the image, ``offsets`` those of the window."""

    src: Region
    offsets: tuple[Expr, ...]
    dst: Writes[Region]
    window: Window


@dataclass(frozen=True)
class TileOrder:
    """A persistent grid: each block takes every gridDim-th tile. Tiles are walked in bands: ``band`` of them
    along grid axis ``axis`` before the other axis moves, so that a wave of blocks shares operands in L2.
    ``pair``: the grid axis along which two neighbours form a cluster that shares loads, None for none.
    ``crosses``: where the axis has an odd end, the tiles at it form pairs along the other axis, which share
    the other operand, else each of them is paired with no tile. ``split``: blocks of a cluster that share the
    trips of one tile's ring, and then its columns. ``narrows``: bands are half as wide where a row of tiles
    is deep."""

    axis: int
    band: int
    pair: int | None = None
    crosses: bool = False
    split: int = 1
    narrows: bool = False

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.split if self.pair is None else 2

    @property
    def listeners(self) -> int:
        """Blocks whose loads write to a block's ring."""
        return 1 if self.pair is None else 2


@dataclass(frozen=True, eq=False)
class MatmulRoles(Stmt):
    """The body of a launch whose warps have roles. Both blocks run once per tile."""

    roles: Roles
    order: TileOrder
    producer: Block
    consumer: Block


@dataclass(frozen=True, eq=False)
class Proceed(Stmt):
    """What follows in the block of a role runs where ``cond`` holds; both roles have the same."""

    cond: Expr


@dataclass(frozen=True, eq=False)
class RingFill(Stmt):
    """``for var in range(start, stop)``: the loads of ``body`` go to the next free ``stage``."""

    ring: Ring
    stage: Defines[Var]
    var: Defines[Var]
    start: Expr
    stop: Expr
    body: Block


@dataclass(frozen=True, eq=False)
class RingDrain(Stmt):
    """As many trips as the fill: the products of ``body`` read the next full ``stage``. Afterwards the
    accumulator holds the sum of all trips (zero for none). ``unrolled``: the compiler may unroll the loop.
    ``promotes``: the tensor core sums one trip, ordinary additions sum the trips."""

    ring: Ring
    stage: Defines[Var]
    trips: Expr
    body: Block
    unrolled: bool = True
    promotes: bool = False


@dataclass(frozen=True, eq=False)
class GatherLoad(Stmt):
    """``dst`` (one version of a tile) = ``src`` from ``start`` on, zeros outside of it, by all loaders: for
    rows that TMA cannot address. The image is that of a `TmaLoad`."""

    src: Buffer
    start: At[tuple[Expr, ...]]
    dst: Writes[Region]


@dataclass(frozen=True, eq=False)
class WarpgroupGemm(Stmt):
    """``c += op(a) @ op(b)`` by wgmma, asynchronously; operands as in `tilec.ir.nodes.Gemm`."""

    a: Region
    b: Region
    c: Updates[Region]
    trans_a: bool
    trans_b: bool
    tile: WarpgroupTile


@dataclass(frozen=True, eq=False)
class ClearFront(Stmt):
    """In the first trip of a tile the first ``columns`` elements, fewer than 16 bytes, of each row of
    ``tile`` become 0, for the tensor core, too: one version of an operand whose rows lie along K."""

    tile: Updates[Region]
    columns: Expr


@dataclass(frozen=True, eq=False)
class SumParts(Stmt):
    """Every block of a cluster holds one of ``parts`` of the sum in ``fragment``; afterwards block r holds
    the whole sum of the r-th share of the columns, where there is one, in the first registers of every block
    of 64 rows. They pass through each other's shared memory."""

    fragment: Updates[Buffer]
    parts: int
    tile: WarpgroupTile

    @property
    def shares(self) -> int:
        """Of the columns: no more than there are parts."""
        return self.tile.shares(self.parts)
