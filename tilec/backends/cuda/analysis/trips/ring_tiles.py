"""Tiles whose first axis counts the stages of a ring, as tiles of one stage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Pipelined, Region, Stmt, children, with_children


def is_one_stage(region: Region) -> bool:
    """Whether a region is one stage of a tile in shared memory, and all of it."""
    tile = region.buffer
    if tile.scope() != "shared.dyn" or len(tile.shape) < 3 or int_value(region.extent[0]) != 1:
        return False
    rest = zip(region.start[1:], region.extent[1:], tile.shape[1:], strict=True)
    return all(int_value(start) == 0 and int_value(extent) == int_value(size) for start, extent, size in rest)


def asks_for_no_stages(loop: Pipelined) -> bool:
    """Whether an author has left a loop one stage, and the order of its statements as it stands."""
    return loop.num_stages < 2 and loop.stage is None and loop.order is None


class OneStage:
    """``tiles`` without their first axes, wherever statements name them: none reads an element of one."""

    def __init__(self, tiles: Iterable[Var]) -> None:
        self._tiles = {tile: _one(tile) for tile in tiles}

    def block(self, block: Block) -> Block:
        """The rewritten statements."""
        return tuple(self.stmt(stmt) for stmt in block)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A rewritten statement."""
        if isinstance(stmt, Alloc) and stmt.buffer in self._tiles:
            return replace(stmt, buffer=self._tiles[stmt.buffer])
        made = with_children(stmt, [self.block(inner) for inner in children(stmt)])
        changes = {
            name: self._region(value) for name, value in vars(made).items() if isinstance(value, Region)
        }
        return replace(made, **changes) if changes else made  # type: ignore[arg-type]

    def _region(self, region: Region) -> Region:
        tile = self._tiles.get(region.buffer)
        return region if tile is None else Region(tile, region.start[1:], region.extent[1:])


def _one(tile: Var) -> Var:
    return tirx.decl_buffer(tile.shape[1:], str(tile.dtype), str(tile.name), scope=str(tile.scope()))
