"""Where the tiles of attention lie in shared memory: how many versions each has, where staging is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.attention.assign.parts import Parts
from tilec.backends.cuda.attention.assign.tiles import is_load
from tilec.backends.cuda.attention.nodes import AsyncProduct, BoxStore, TileRing
from tilec.backends.cuda.nodes import TurnTile
from tilec.backends.cuda.warp_roles.ring import slab_shape, tile_bytes, version_bytes
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Block, Pipelined, walk
from tilec.lowering.emission.storage import element_bytes
from tilec.targets import SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Shared memory for barriers, tile coordinates and alignment.
_BARRIER_BYTES = 2048
#: Versions of streamed tiles where an author has fewer (H200, 4096 queries and keys, us with 1 and 2: 64 x 64
#: tiles of 64 channels 391, 319; 128 x 64 of 128, 192 and 256 channels 609, 448; 822, 588; 1050, 815).
_STREAMED = 2


@dataclass(frozen=True)
class Memory:
    """``rings`` hold the tiles; ``staging`` are the buffers of stores that lie beside them, and ``host`` is
    the ring whose version at hand serves as the one staging buffer there is, None where there are others."""

    rings: tuple[TileRing, ...]
    staging: tuple[Var, ...]
    host: TileRing | None = None

    @property
    def bytes(self) -> int:
        """What it takes."""
        return sum(ring.bytes * ring.stages for ring in self.rings) + sum(map(tile_bytes, self.staging))

    def hosted(self, block: Block) -> Block:
        """``block`` with its store going through the host, if there is one."""
        host = self.host
        if host is None:
            return block
        return tuple(
            replace(stmt, staging=host.tile) if isinstance(stmt, BoxStore) else stmt for stmt in block
        )


def fitted(parts: Parts, staging: tuple[Var, ...], target: Target, together: int, stages: int = 1) -> Memory:
    """The best that fits with ``together`` blocks on a multiprocessor, streamed tiles in at most ``stages``
    versions, or two, where the author has fewer. Tiles that are loaded once get a second version if there is
    room, so that those of the next tile arrive meanwhile; for that, results are staged where a tile is no
    longer read."""
    assert target.gpu is not None
    whole = (target.gpu.shared_bytes + SYSTEM_SHARED_BYTES) // together - SYSTEM_SHARED_BYTES
    room = whole - _BARRIER_BYTES
    for memory in _choices(parts, staging, stages):
        if memory.bytes <= room:
            return memory
    raise Unfit(
        f"tiles and staging of {memory.bytes} bytes do not fit the {room} bytes of a block",
        remedy="choose smaller tiles or fewer stages",
    )


def _choices(parts: Parts, staging: tuple[Var, ...], stages: int) -> Iterator[Memory]:
    """Best first."""
    own = max(_loop(parts).num_stages, _STREAMED)
    for versions in range(max(own, stages), own, -1):
        yield from _with_stages(parts, staging, versions, (2,))
    for versions in range(own, 0, -1):
        yield from _with_stages(parts, staging, versions, (2, 1))


def _loop(parts: Parts) -> Pipelined:
    return next(stmt for stmt in parts.producer if isinstance(stmt, Pipelined))


def _with_stages(
    parts: Parts, staging: tuple[Var, ...], stages: int, once: tuple[int, ...]
) -> Iterator[Memory]:
    """With so many versions of what is streamed, and of what is loaded once."""
    streamed = {stmt.dst.buffer for stmt in _loop(parts).body if is_load(stmt)}  # type: ignore[attr-defined]
    streamed |= {stmt.dst.buffer for stmt in walk(parts.turner) if isinstance(stmt, TurnTile)}
    for versions in once:
        rings = tuple(_ring(tile, stages if tile in streamed else versions) for tile in parts.tiles)
        kept = (ring for ring in rings if ring.source not in streamed)
        host = next((ring for ring in kept if _may_host(ring.source, staging, parts)), None)
        yield Memory(rings, staging)
        if host is not None:
            yield Memory(rings, (), host)


def _may_host(tile: Var, staging: tuple[Var, ...], parts: Parts) -> bool:
    """Whether a warpgroup may stage its rows in its rows of a tile when its products are complete: nobody
    else reads them, and they lie as staged rows do."""
    readers = [stmt for stmt in walk(parts.consumer) if isinstance(stmt, AsyncProduct)]
    own = all(not stmt.b.buffer.same_as(tile) for stmt in readers) and not any(
        stmt.trans_a for stmt in readers if stmt.a.buffer.same_as(tile)
    )
    if len(staging) != 1 or not own or element_bytes(str(tile.dtype)) != 2:
        return False
    return _rows(tile) == _rows(staging[0]) and version_bytes(tile, False) >= tile_bytes(staging[0])


def _rows(tile: Var) -> int | None:
    return int_value(tile.shape[0])


def _ring(tile: Var, stages: int) -> TileRing:
    """The ring of a tile, whose rows go on to the end of the last box that TMA brings of them."""
    shape = (stages, *slab_shape(tile, False))
    version = tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope="shared.dyn")
    stage = tirx.Var(f"{tile.name}_stage", "int32")
    return TileRing(version, tile, stages, version_bytes(tile, False), stage)
