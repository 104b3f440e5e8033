"""Tiles that no statement uses."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.nodes import Alloc, Launch, walk
from tilec.ir.traits import mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

_ON_CHIP = ("shared.dyn", "local.fragment")


class DropIdleTiles(LaunchPass):
    """In: allocations. Out: of tiles and fragments only those that a statement names."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without the others."""
        tiles = [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
        named = {
            name for stmt in walk(launch.body) if not isinstance(stmt, Alloc) for name in mentioned(stmt)
        }
        idle = [tile for tile in tiles if tile.buffer.scope() in _ON_CHIP and tile.buffer not in named]
        if not idle:
            return launch
        body = rewrite_blocks(launch.body, lambda block: [stmt for stmt in block if stmt not in idle])
        shared = [tile.buffer.name for tile in idle if tile.buffer.scope() == "shared.dyn"]
        return with_notes(replace(launch, body=body), [f"{name} takes no room" for name in shared])
