"""Shared tiles get their places in the block's one pool of shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.errors import CompileError
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Stmt, children, walk
from tilec.lowering.cpu.place_tiles import tile_bytes
from tilec.lowering.passes import rewrite_launches, with_children
from tilec.lowering.places import place_of

if TYPE_CHECKING:
    from tilec.targets import Target

#: Tiles start at multiples of this: eight rows of 16 bytes, the period of swizzles.
ALIGNMENT = 128


@dataclass(frozen=True)
class PlaceShared:
    """In: shared tiles without a place. Out: each has a byte offset in the pool, one behind the other.

    CompileError where the sum is more than a block of the target may have."""

    name: str = "place_shared"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its shared tiles placed."""
        return rewrite_launches(kernel, lambda launch: _placed_launch(launch, target))


def _placed_launch(launch: Launch, target: Target) -> Launch:
    offsets: dict[int, int] = {}
    top = 0
    for alloc in shared_tiles(launch.body):
        offsets[id(alloc)], top = top, top + _aligned(tile_bytes(alloc))
    _check(launch, top, target)
    return replace(launch, body=_placed(launch.body, offsets))


def shared_tiles(block: Block) -> list[Alloc]:
    """The allocations in shared memory."""
    return [stmt for stmt in walk(block) if isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn"]


def pool_bytes(launch: Launch) -> int:
    """Bytes of the pool of a launch whose tiles are placed."""
    ends = [alloc.place[1] + _aligned(tile_bytes(alloc)) for alloc in shared_tiles(launch.body)
            if isinstance(alloc.place, tuple)]  # fmt: skip
    return max(ends, default=0)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _placed(block: Block, offsets: dict[int, int]) -> Block:
    return tuple(_placed_stmt(stmt, offsets) for stmt in block)


def _placed_stmt(stmt: Stmt, offsets: dict[int, int]) -> Stmt:
    if id(stmt) in offsets:
        return replace(stmt, place=("shared", offsets[id(stmt)]))  # type: ignore[call-arg]
    return with_children(stmt, [_placed(inner, offsets) for inner in children(stmt)])


def _check(launch: Launch, total: int, target: Target) -> None:
    assert target.gpu is not None
    if total <= target.gpu.shared_bytes:
        return
    tiles = sorted(shared_tiles(launch.body), key=tile_bytes, reverse=True)[:3]
    largest = ", ".join(f"{tile.buffer.name} {tile_bytes(tile)}" for tile in tiles)
    raise CompileError(
        f"the shared tiles take {total} bytes, a block of {target.name} has {target.gpu.shared_bytes}",
        place=place_of(launch),
        why=f"the largest: {largest}",
        remedy="use smaller tiles or fewer stages",
    )
