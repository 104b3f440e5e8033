"""Launches whose blocks take several tiles of the author's, one behind the other, as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.long_tiles import LongTiles, on_chip, sides
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.ir.analysis.renaming import Renaming, copied
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Copy, Launch, Parallel, Region, Stmt
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Var


def with_longer_tiles(tiles: LongTiles, times: int) -> Launch:
    """The launch whose blocks take ``times`` tiles each. Its variables are its own."""
    launch, block = tiles.launch, tiles.block
    body = rename(_Longer(tiles, times).block(launch.body), {block: block * times})
    grid = [
        (extent + (times - 1)) // times if var.same_as(block) else extent
        for var, extent in zip(launch.block_vars, launch.grid, strict=True)
    ]
    (made,) = copied((replace(launch, grid=tuple(grid), body=body),))
    assert isinstance(made, Launch)
    return made


class _Longer(Renaming):
    """Makes tiles longer, with the boxes that they hold and the loops over their elements."""

    def __init__(self, tiles: LongTiles, times: int) -> None:
        self._old, self._times = tiles, times
        self._made = {tile: self._longer(tile, axis) for tile, axis in tiles.axes.items()}
        super().__init__(self._made)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement over longer tiles."""
        made = super().stmt(stmt)
        row = self._old.rows.get(stmt)
        if isinstance(made, Parallel) and row is not None:
            extents = (
                (int_value(extent) or 0) * (self._times if var.same_as(row) else 1)
                for var, extent in zip(made.vars, made.extents, strict=True)
            )
            return replace(made, extents=tuple(extents))
        return self._copy(stmt, made) if isinstance(made, Copy) and isinstance(stmt, Copy) else made

    def _copy(self, old: Copy, made: Copy) -> Copy:
        """A copy with the box of a tensor as long as the tile."""
        for source, target in sides(old):
            if self._old.axes.get(old.dst.buffer) == target and not on_chip(old.src.buffer):
                return replace(made, src=self._stretched(made.src, source))
            if self._old.axes.get(old.src.buffer) == source and not on_chip(old.dst.buffer):
                return replace(made, dst=self._stretched(made.dst, target))
        return made

    def region(self, region: Region) -> Region:
        """All of a longer tile."""
        made = self._made.get(region.buffer)
        return super().region(region) if made is None else whole_tile(made)

    def _longer(self, tile: Var, axis: int) -> Var:
        shape = [
            extent * (self._times if place == axis else 1)
            for place, extent in enumerate(static_extents(tile))
        ]
        return tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope=tile.scope())

    def _stretched(self, region: Region, axis: int) -> Region:
        """A box of a tensor for a longer tile."""
        extent = [size * (self._times if place == axis else 1) for place, size in enumerate(region.extent)]
        return replace(region, extent=tuple(extent))
