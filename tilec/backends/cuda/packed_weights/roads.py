"""The road of a product of packed weights."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.warp_roles.roads import roads
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of


@roads.register(PackedProduct)
def _of_product(stmt: PackedProduct) -> Iterator[Road]:
    kind = "mma.sync" if stmt.slices else "wgmma"
    yield road_of(stmt, kind, f"{kind} on weights of {stmt.packing.width} bits converted in registers")
