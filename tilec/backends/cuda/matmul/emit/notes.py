"""What `tilec explain` says about a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import wide_note
from tilec.backends.cuda.matmul.emit.early import loads_early
from tilec.backends.cuda.matmul.nodes import GatherLoad, RingDrain, RingFill
from tilec.backends.cuda.matmul.passes.issue_wide import wide_product
from tilec.backends.cuda.warp_roles.nodes import TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.roads import how_stored
from tilec.backends.cuda.warp_roles.stores import stores_alone
from tilec.ir.nodes import walk
from tilec.lowering.analysis.scopes import conditioned

if TYPE_CHECKING:
    from tilec.backends.cuda.matmul.nodes import MatmulRoles
    from tilec.ir.nodes import Launch

_NARROW_SUMS = "sums of 8-bit products stay in the tensor core, which keeps fewer bits than float32"
_PAIRS = (
    "blocks form pairs along one axis of the grid, of which neighbours have the same trips and load an"
    " operand in common"
)
_BEGINS = ", beginning early where its blocks are few, or load little"
_LATE = "that takes pdl, an operand by TMA, no pairs of blocks and nothing to compute before"


def notes(launch: Launch, roles: MatmulRoles, begins_early: bool) -> tuple[str, ...]:
    """How a launch with roles is carried out, and what it was asked for and is not done."""
    ring = next(stmt.ring for stmt in walk(roles.producer) if isinstance(stmt, RingFill))
    stores = [stmt for stmt in roles.consumer if isinstance(stmt, TileStore)]
    how = _how_stored(stores[-1]) if stores else "no stores"
    loads = [stmt for stmt in walk(roles.producer) if isinstance(stmt, (TmaLoad, GatherLoad))]
    gathers = any(isinstance(load, GatherLoad) for load in loads)
    rows = ", unaligned rows without TMA" if gathers else ""
    pairs = "" if roles.order.pair is None else ", operands multicast to clusters of 2"
    split = f", K split over clusters of {roles.order.split}" if roles.order.split > 1 else ""
    swap = ", operands swapped" if any(stmt.turned for stmt in stores[-1:]) else ""
    turns = " that take turns" if roles.roles.pingpong else ""
    images = ", image columns by im2col" if any(getattr(load, "offsets", ()) for load in loads) else ""
    begins = _BEGINS if begins_early and not loads_early(roles) else ""
    strategy = (
        f"one producer and {roles.roles.consumers} consumer warpgroups{turns}, wgmma,"
        f" TMA ring of {ring.stages} stages, {how}, persistent grid in bands of {roles.order.band}"
        f"{pairs}{split}{swap}{rows}{images}{begins}"
    )
    narrow = any(str(load.dst.buffer.dtype).startswith("float8") for load in loads)
    promotes = any(stmt.promotes for stmt in roles.consumer if isinstance(stmt, RingDrain))
    sums = (_NARROW_SUMS,) if narrow and not promotes else ()
    return (strategy, *_wide(roles), *sums, *_early(launch, loads), *_apart(launch, roles))


def _wide(roles: MatmulRoles) -> tuple[str, ...]:
    """Which products are issued as one."""
    return tuple(
        wide_note(wide[0].a, (gemm.b for gemm in wide), sum(gemm.tile.columns for gemm in wide))
        for stmt in roles.consumer
        if isinstance(stmt, RingDrain)
        for wide in map(wide_product, stmt.body)
        if len(wide) > 1
    )


def _apart(launch: Launch, roles: MatmulRoles) -> tuple[str, ...]:
    """That blocks form no clusters although they are asked to."""
    asked = launch.schedule.clusters
    if roles.order.pair is not None or asked is None or set(asked) == {1}:
        return ()
    return (f"clusters of {' x '.join(map(str, asked))} have no effect: {_PAIRS}",)


def _how_stored(store: TileStore) -> str:
    how, (condition, body) = how_stored(store), conditioned(store.body)
    if condition is None or not store.columns:
        return how
    if not stores_alone(body):
        return f"{how} of tiles that are whole, others from registers"
    return how if store.map is None else f"{how} of tiles that are whole, others in vectors"


def _early(launch: Launch, loads: Sequence[TmaLoad | GatherLoad]) -> tuple[str, ...]:
    """What becomes of the tensors that the config calls ``constant``."""
    names = launch.schedule.constant
    if not names:
        return ()
    early = [str(load.map.buffer.name) for load in loads if isinstance(load, TmaLoad) and load.early]
    found = [f"{', '.join(early)} read before the launches in front have ended"] if early else []
    left = [name for name in names if name not in early]
    if left:
        found.append(f"{', '.join(left)} read behind the launches in front: {_LATE}")
    return tuple(found)
