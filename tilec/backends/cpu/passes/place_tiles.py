"""Puts every tile on the stack or into the worker's scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.ir.nodes import Alloc, Block, Launch, Parallel, Stmt, children, walk, with_children
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import LaunchPass

#: Scratch offsets are multiples of this: a cache line, and the widest vector.
ALIGNMENT = 64
#: The place of a tile that is to lie in scratch, wherever there is room: its vectors fill cache lines.
ASKED = "scratch"


@dataclass(frozen=True)
class PlaceTiles(LaunchPass):
    """In: tiles, some in registers, some that ask for scratch, the others without a place. Out: every Alloc
    of a launch has a place: the smallest tiles are on the stack, ``stack_bytes`` of them at most, the others
    and those that ask for it one after another in scratch. Arrays on the stack are aligned to 16 bytes.
    Temporaries of a Parallel body are always on the stack, since they become registers. Tiles do not share
    memory: the code generator relies on two buffers never overlapping."""

    stack_bytes: int = 32 * 1024

    def launch(self, launch: Launch) -> Launch:
        """The launch with all tiles placed."""
        places: dict[Alloc, str | tuple[str, int]] = {}
        used = top = 0
        for alloc in sorted(_tiles(launch.body), key=tile_bytes):
            size = tile_bytes(alloc)
            if alloc.place != ASKED and used + size <= self.stack_bytes:
                places[alloc], used = "stack", used + size
                continue
            places[alloc], top = ("scratch", top), top + _aligned(size)
        return replace(launch, body=_placed(launch.body, places))


def _tiles(block: Block) -> list[Alloc]:
    """The allocations of a block that are not temporaries of a Parallel body."""
    found: list[Alloc] = []
    for stmt in block:
        if isinstance(stmt, Alloc) and stmt.place in (None, ASKED):
            found.append(stmt)
        if not isinstance(stmt, Parallel):
            found += [alloc for inner in children(stmt) for alloc in _tiles(inner)]
    return found


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _placed(block: Block, places: dict[Alloc, str | tuple[str, int]]) -> Block:
    return tuple(_placed_stmt(stmt, places) for stmt in block)


def _placed_stmt(stmt: Stmt, places: dict[Alloc, str | tuple[str, int]]) -> Stmt:
    if isinstance(stmt, Alloc):
        return stmt if stmt.place not in (None, ASKED) else replace(stmt, place=places.get(stmt, "stack"))
    return with_children(stmt, [_placed(inner, places) for inner in children(stmt)])


def scratch_bytes(launch: Launch) -> int:
    """Scratch that one worker needs for a launch whose tiles are placed, a multiple of `ALIGNMENT`."""
    tops = [alloc.place[1] + tile_bytes(alloc) for alloc in walk(launch.body)
            if isinstance(alloc, Alloc) and isinstance(alloc.place, tuple)]  # fmt: skip
    return _aligned(max(tops, default=0))
