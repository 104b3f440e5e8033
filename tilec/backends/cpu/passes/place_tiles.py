"""Puts every tile on the stack or into the worker's scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.ir.nodes import Alloc, Block, Launch, Parallel, Stmt, children, walk
from tilec.lowering.emission.memory import tile_bytes, whole_units
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

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
            places[alloc], top = ("scratch", top), top + whole_units(size, ALIGNMENT)
        body = rewrite_blocks(launch.body, lambda block: [_placed(stmt, places) for stmt in block])
        return replace(launch, body=body)


def _tiles(block: Block) -> list[Alloc]:
    """The allocations of a block that are not temporaries of a Parallel body."""
    found: list[Alloc] = []
    for stmt in block:
        if isinstance(stmt, Alloc) and stmt.place in (None, ASKED):
            found.append(stmt)
        if not isinstance(stmt, Parallel):
            found += [alloc for inner in children(stmt) for alloc in _tiles(inner)]
    return found


def _placed(stmt: Stmt, places: dict[Alloc, str | tuple[str, int]]) -> Stmt:
    if not isinstance(stmt, Alloc) or stmt.place not in (None, ASKED):
        return stmt
    return replace(stmt, place=places.get(stmt, "stack"))


def scratch_bytes(launch: Launch) -> int:
    """Scratch that one worker needs for a launch whose tiles are placed, a multiple of `ALIGNMENT`."""
    tops = [alloc.place[1] + tile_bytes(alloc) for alloc in walk(launch.body)
            if isinstance(alloc, Alloc) and isinstance(alloc.place, tuple)]  # fmt: skip
    return whole_units(max(tops, default=0), ALIGNMENT)
