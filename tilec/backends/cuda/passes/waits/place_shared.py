"""Shared tiles get their places in the block's one pool of shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups
from tilec.backends.cuda.analysis.pipelines.behind_rings import behind_rings, rings_of, turns_of
from tilec.backends.cuda.analysis.pipelines.lifetimes import ALWAYS, Lifetime, lifetimes
from tilec.backends.cuda.analysis.products.units import ALIGNMENT, alignment_of, tiles_of_units
from tilec.errors import CompileError, Kind
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Stmt, walk
from tilec.ir.nodes.barriers import SCOPE as BARRIERS
from tilec.ir.places import place_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.memory import tile_bytes, whole_units
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Tiles of so many bytes share them with no other tile: the barrier between the two costs more.
SMALL = 1024
#: What the smallest of them start at where bytes are short: a vector.
_SMALLEST = 16
_SHARED = ("shared.dyn", BARRIERS)


class PlaceShared(Pass):
    """In: shared tiles without a place. Out: each has a byte offset in the pool; tiles that are never in use
    at the same time may share bytes (`Synchronise` then keeps threads apart).

    CompileError where the pool is more than a block of the target may have."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its shared tiles placed."""
        return rewrite_launches(kernel, lambda launch: _placed_launch(launch, target))


@dataclass(frozen=True)
class PoolPlan:
    """Byte offsets of tiles in the pool of a launch, and its size."""

    offsets: Mapping[Var, int]
    total: int


def pool_plan(launch: Launch, *, brief: bool = False) -> PoolPlan:
    """Where the shared tiles of a launch may lie: each at the lowest offset that is free in its lifetime.
    ``brief``: see `lifetimes`; it saves bytes, also between small tiles, and costs barriers. Without it tiles
    of a launch whose threads have groups share none, but those that consumers use behind their rings."""
    apart = has_groups(launch) and not brief
    lives = _with_rings(launch) if apart else lifetimes(launch.body, brief=brief)
    unused = ALWAYS if apart else Lifetime(0, 0)
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[Var, int] = {}
    of_units = tiles_of_units(launch.body)
    for alloc in _in_turn(launch, brief, bool(apart and lives)):
        least = _SMALLEST if brief and tile_bytes(alloc) < ALIGNMENT else ALIGNMENT
        unit = alignment_of(alloc) if alloc.buffer in of_units else least
        size = whole_units(tile_bytes(alloc), least)
        shares = size > SMALL and alloc.buffer.scope() != BARRIERS
        life = lives.get(alloc.buffer, unused) if shares else ALWAYS
        offset = 0
        for start, end, _ in sorted((s, e, o.first) for s, e, o in placed if o.meets(life)):
            if offset + size <= start:
                break
            offset = max(offset, whole_units(end, unit))
        offsets[alloc.buffer] = offset
        placed.append((offset, offset + size, life))
    return PoolPlan(offsets, max((end for _, end, _ in placed), default=0))


def _with_rings(launch: Launch) -> dict[Var, Lifetime]:
    """The lifetimes of rings, of those that lie over others, and of the tiles behind them."""
    behind, turns = behind_rings(launch), turns_of(launch)
    if not behind and not turns:
        return {}
    last = max((place for pair in turns.values() for place in pair if place is not None), default=0)
    lives = dict.fromkeys(rings_of(launch), Lifetime(0, last))
    for tile, (first, end) in turns.items():
        lives[tile] = Lifetime(first, last if end is None else end)
    return lives | dict.fromkeys(behind, Lifetime(last + 1, last + 1))


def _in_turn(launch: Launch, brief: bool, on_rings: bool) -> list[Alloc]:
    """The tiles of a launch in program order; to save bytes the largest first, so that others fill gaps.
    ``on_rings``: the smallest first, so that rings lie side by side."""
    tiles = shared_tiles(launch.body)
    if on_rings:
        return sorted(tiles, key=lambda alloc: tile_bytes(alloc) > SMALL)
    return sorted(tiles, key=tile_bytes, reverse=True) if brief else tiles


def sharing(block: Block) -> dict[Var, frozenset[Var]]:
    """For every placed tile the others that lie on some of its bytes."""
    spans = [(alloc.buffer, alloc.place[1], alloc.place[1] + tile_bytes(alloc))
             for alloc in shared_tiles(block) if isinstance(alloc.place, tuple)]  # fmt: skip
    return {
        tile: frozenset(other for other, low, high in spans
                        if not other.same_as(tile) and low < end and start < high)
        for tile, start, end in spans
    }  # fmt: skip


def _placed_launch(launch: Launch, target: Target) -> Launch:
    assert target.gpu is not None
    plan, room = pool_plan(launch), target.gpu.shared_bytes
    if plan.total > room:
        launch, plan = _noted(launch, plan.total, room), pool_plan(launch, brief=True)
    _check(launch, plan.total, target)
    body = rewrite_blocks(launch.body, lambda block: [_placed(stmt, plan.offsets) for stmt in block])
    return replace(launch, body=body)


def _noted(launch: Launch, total: int, room: int) -> Launch:
    why = f"shared tiles take turns, behind barriers: apart they take {total} bytes, a block has {room}"
    return with_notes(launch, [why])


def shared_tiles(block: Block) -> list[Alloc]:
    """The allocations in shared memory."""
    return [stmt for stmt in walk(block) if isinstance(stmt, Alloc) and stmt.buffer.scope() in _SHARED]


def pool_bytes(launch: Launch) -> int:
    """Bytes of the pool of a launch whose tiles are placed."""
    ends = [alloc.place[1] + whole_units(tile_bytes(alloc), ALIGNMENT) for alloc in shared_tiles(launch.body)
            if isinstance(alloc.place, tuple)]  # fmt: skip
    return max(ends, default=0)


def _placed(stmt: Stmt, offsets: Mapping[Var, int]) -> Stmt:
    if not isinstance(stmt, Alloc) or stmt.buffer not in offsets:
        return stmt
    return replace(stmt, place=("shared", offsets[stmt.buffer]))


def _check(launch: Launch, total: int, target: Target) -> None:
    assert target.gpu is not None
    if total <= target.gpu.shared_bytes:
        return
    tiles = sorted(shared_tiles(launch.body), key=tile_bytes, reverse=True)[:3]
    largest = ", ".join(f"{tile.buffer.name} {tile_bytes(tile)}" for tile in tiles)
    error = CompileError(
        f"the shared tiles take {total} bytes, a block of {target.name} has {target.gpu.shared_bytes}",
        place=place_of(launch),
        why=f"the largest: {largest}",
        remedy="use smaller tiles or fewer stages",
        kind=Kind.SHARED_MEMORY,
    )
    rings = rings_of(launch)
    if rings:
        stages = sum(tile_bytes(alloc) for alloc in shared_tiles(launch.body) if alloc.buffer in rings)
        error.for_rings = stages - (total - target.gpu.shared_bytes)
    raise error
