"""The roads of the statements of products."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.matmul.nodes import GatherLoad, WarpgroupGemm
from tilec.backends.cuda.warp_roles.roads import moved, roads
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES
from tilec.backends.cuda.warp_roles.wgmma import ROWS
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes


@roads.register(GatherLoad)
def _of_gather(stmt: GatherLoad) -> Iterator[Road]:
    count = STRIDE_BYTES // element_bytes(str(stmt.src.dtype))
    why = f"rows of {stmt.src.name} are not known to start at multiples of {STRIDE_BYTES} bytes"
    loss = Loss("tma", why, f'give the dimension of its rows a guard such as "%{count}", or pin it')
    yield moved(stmt, stmt.src, stmt.dst.buffer, "gathered", "gathered by eight warps", loss)


@roads.register(WarpgroupGemm)
def _of_product(stmt: WarpgroupGemm) -> Iterator[Road]:
    yield road_of(stmt, "wgmma", f"wgmma m{ROWS}n{stmt.tile.columns}")
