"""The roads of the statements of attention."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.attention.nodes import AsyncProduct, BoxStore
from tilec.backends.cuda.warp_roles.roads import moved, roads
from tilec.backends.cuda.warp_roles.wgmma import ROWS
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of


@roads.register(AsyncProduct)
def _of_product(stmt: AsyncProduct) -> Iterator[Road]:
    yield road_of(stmt, "wgmma", f"wgmma m{ROWS}n{stmt.columns}")


@roads.register(BoxStore)
def _of_store(stmt: BoxStore) -> Iterator[Road]:
    yield moved(stmt, stmt.src.buffer, stmt.map.buffer, "tma", "TMA stores")
