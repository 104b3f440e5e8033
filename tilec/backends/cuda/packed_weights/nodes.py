"""The body of a launch whose first operand is converted in registers, and how it prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.packed_weights.packing import Packing
from tilec.backends.cuda.warp_roles.nodes import TensorMap, TileStore, WarpgroupTile
from tilec.ir.stmt import Defines, Region, Stmt, Updates, Writes
from tilec.ir.text.printer import register

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.text.printer import Printer

WARPGROUP = 128


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
class StreamLoad(Stmt):
    """``dst`` (a tile of one stage) = the map's buffer from ``start`` on, by TMA, zeros outside of it. The
    tile lies in slabs of the box's columns, one behind the other. ``evict``: "first" or "last" to leave the
    L2 cache. ``early``: nothing on the stream writes the tensor, so a launch may read it before its turn.
    ``shared``: a pair of blocks wants the same, so that each brings one box of half the rows to both."""

    map: TensorMap
    start: tuple[Expr, ...]
    dst: Writes[Region]
    evict: str | None
    early: bool
    shared: bool = False


@dataclass(frozen=True, eq=False)
class ConvertedProduct(Stmt):
    """``c = sum over var of convert(a) @ b.T``: a ring of ``stages`` stages that ``loads`` fill, ``a`` being
    packed as ``packing`` says, every group of ``group`` columns times a row of ``scale`` where there is one;
    ``scales_sums``: the scale multiplies the sum of a group's products instead of each weight.
    ``store`` are the epilogues. ``slices``: 0 for products of whole warpgroups (wgmma); else each warp
    multiplies for itself (mma.sync), and so many warps of a warpgroup share the columns of a stage."""

    teams: Teams
    stages: int
    var: Defines[Var]
    start: Expr
    stop: Expr
    loads: tuple[StreamLoad, ...]
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

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return 2 if any(load.shared for load in self.loads) else 1


@register(StreamLoad)
def _load(out: Printer, stmt: StreamLoad) -> None:
    start = ", ".join(out.expr(index) for index in stmt.start)
    hint = ("" if stmt.evict is None else f', evict="{stmt.evict}"') + (", early=True" if stmt.early else "")
    hint += ", shared=True" if stmt.shared else ""
    box = f"box={stmt.map.box}, swizzle={stmt.map.swizzle}"
    out.line(f"tma_load({out.name(stmt.map.buffer)}[{start}], {out.region(stmt.dst)}, {box}{hint})")


@register(ConvertedProduct)
def _product(out: Printer, stmt: ConvertedProduct) -> None:
    teams, tile, packing = stmt.teams, stmt.tile, stmt.packing
    bounds = f"{out.expr(stmt.start)}, {out.expr(stmt.stop)}"
    out.nest(f"for {out.name(stmt.var)} in ring_fill({bounds}, stages={stmt.stages}):", stmt.loads)
    parts = [
        *(out.region(region) for region in (stmt.a, stmt.b, stmt.c)),
        *([] if stmt.scale is None else [f"scale={out.region(stmt.scale)}", f"group={stmt.group}"]),
        *(["scales_sums=True"] if stmt.scales_sums else []),
        f"bits={packing.width}",
        f"zero={packing.zero}",
        f'"m64n{tile.columns}.{tile.types}"',
        f"warpgroups=({teams.rows}, {teams.depth})",
        *([f"slices={stmt.slices}"] if stmt.slices else []),
        f"rows={tile.rows}",
        f"steps={tile.steps}",
    ]
    out.line(f"converted_product({', '.join(parts)})")
    for inner in stmt.store:
        out.stmt(inner)
