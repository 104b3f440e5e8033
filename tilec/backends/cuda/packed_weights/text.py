"""How the statement of `tilec.backends.cuda.packed_weights.nodes` looks in tile IR text, and its road."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.warp_roles.roads import roads
from tilec.ir.text.printer import register
from tilec.lowering.analysis.roads import road_of

if TYPE_CHECKING:
    from tilec.ir.roads import Road
    from tilec.ir.text.printer import Printer


@register(PackedProduct)
def _product(out: Printer, stmt: PackedProduct) -> None:
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


@roads.register(PackedProduct)
def _road(stmt: PackedProduct) -> Iterator[Road]:
    kind = "mma.sync" if stmt.slices else "wgmma"
    yield road_of(stmt, kind, f"{kind} on weights of {stmt.packing.width} bits converted in registers")
