"""The body of a launch whose first operand is converted in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.packed_weights.packing import Packing
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP, TileStore, TmaLoad, WarpgroupTile
from tilec.ir.stmt import Defines, Region, Stmt, Updates

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True)
class Teams:
    """Consumer warpgroups: ``rows`` of them share the rows of the tile, ``depth`` of those teams take turns
    along K, each with stages of its own, and add their sums at the end. One more warp loads."""

    rows: int
    depth: int

    @property
    def consumers(self) -> int:
        """Consumer warpgroups in all."""
        return self.rows * self.depth

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return WARPGROUP * self.consumers + 32


@dataclass(frozen=True, eq=False)
class PackedProduct(Stmt):
    """``c = sum over var of convert(a) @ b.T``: a ring of ``stages`` stages that ``loads`` fill, ``a`` being
    packed as ``packing`` says, every group of ``group`` columns times a row of ``scale`` where there is one;
    ``scales_sums``: the scale multiplies the sum of a group's products instead of each weight.
    ``store`` are the epilogues. ``slices``: 0 for products of whole warpgroups (wgmma); else each warp
    multiplies for itself (mma.sync), and so many warps of a warpgroup share the columns of a stage.
    ``split``: blocks of a cluster, neighbours along the first grid axis, that share the trips of a tile."""

    teams: Teams
    stages: int
    var: Defines[Var]
    start: Expr
    stop: Expr
    loads: tuple[TmaLoad, ...]
    a: Region
    b: Region
    c: Updates[Region]
    scale: Region | None
    group: int
    scales_sums: bool
    packing: Packing
    tile: WarpgroupTile
    store: tuple[TileStore, ...]
    slices: int = 0
    split: int = 1

    @property
    def pairs(self) -> int:
        """Blocks that load activations together."""
        return 2 if any(load.shared for load in self.loads) else 1

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.pairs * self.split
