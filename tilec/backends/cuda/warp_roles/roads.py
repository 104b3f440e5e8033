"""The roads of a launch whose warps have roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.attention.nodes import AsyncProduct, BoxStore
from tilec.backends.cuda.packed_weights.nodes import ConvertedProduct, StreamLoad
from tilec.backends.cuda.warp_roles.nodes import GatherLoad, TileStore, TmaLoad, WarpgroupGemm
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES
from tilec.ir.nodes import Block, Launch, Stmt, walk
from tilec.ir.roads import Loss, Road, in_order
from tilec.lowering.analysis.roads import located, road_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

_ROWS = 64


def roads_of(launch: Launch, body: Block, how: str, others: list[Road] | None = None) -> tuple[Road, ...]:
    """The roads of a launch that is carried out as ``how`` says and of the statements in ``body``; ``others``
    are those that emission found."""
    own = located(Road("T.Kernel", "warp_roles", how), launch)
    found = (road for stmt in walk(body) for road in _roads(stmt))
    return in_order((own, *launch.roads, *found, *(others or ())))


def _roads(stmt: Stmt) -> Iterator[Road]:
    if isinstance(stmt, (TmaLoad, StreamLoad)):
        image = " of image columns (im2col)" if getattr(stmt, "offsets", ()) else ""
        shared = ", multicast to a pair of blocks" if stmt.shared else ""
        yield _moved(stmt, stmt.map.buffer, stmt.dst.buffer, "tma", f"TMA{image}{shared}")
    elif isinstance(stmt, GatherLoad):
        count = STRIDE_BYTES // element_bytes(str(stmt.src.dtype))
        why = f"rows of {stmt.src.name} are not known to start at multiples of {STRIDE_BYTES} bytes"
        loss = Loss("tma", why, f'give the dimension of its rows a guard such as "%{count}", or pin it')
        yield _moved(stmt, stmt.src, stmt.dst.buffer, "gathered", "gathered by eight warps", loss)
    elif isinstance(stmt, (WarpgroupGemm, AsyncProduct)):
        columns = stmt.columns if isinstance(stmt, AsyncProduct) else stmt.tile.columns
        yield road_of(stmt, "wgmma", f"wgmma m{_ROWS}n{columns}")
    elif isinstance(stmt, ConvertedProduct):
        kind = "mma.sync" if stmt.slices else "wgmma"
        yield road_of(stmt, kind, f"{kind} on weights of {stmt.packing.width} bits converted in registers")
    elif isinstance(stmt, TileStore):
        how = "stores from registers" if stmt.map is None else "TMA stores"
        yield road_of(stmt, "registers" if stmt.map is None else "tma", how, stmt.loss)
    elif isinstance(stmt, BoxStore):
        yield _moved(stmt, stmt.src.buffer, stmt.map.buffer, "tma", "TMA stores")


def _moved(stmt: Stmt, source: Var, target: Var, kind: str, how: str, loss: Loss | None = None) -> Road:
    return located(Road(f"{source.name} -> {target.name}", kind, how, loss=loss), stmt)
