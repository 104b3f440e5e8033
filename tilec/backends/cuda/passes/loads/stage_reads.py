"""Tiles of tensors that threads read beside the products of a trip come ahead of it, by way of shared memory.

for k in pipelined(n): S = Q K[k]; for i, j: S[i, j] += bias[i, k * 64 + j]
->
for k in pipelined(n): S = Q K[k]; bias_ahead = bias[:, k * 64 :+ 64]; for i, j: S[i, j] += bias_ahead[i, j]

Threads would ask for them in the trip, and wait. H200, attention over 4096 keys, 16 heads of 128, us: a bias
that a copy brings to a fragment 874, and 547; a mask of bytes that the loop over scores reads 679, and 474.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import has_groups
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, whole_tile
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import tile_of_box
from tilec.backends.cuda.statement_roles.split.loads import filled
from tilec.ir.exprs import each_once, inlined, int_value, uses
from tilec.ir.nodes import (
    Alloc,
    Copy,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    is_global,
    walk,
)
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.element_boxes import box_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.rewrite import with_elements

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.targets import Target

#: Bytes of shared memory that stay free for results and barriers.
_FREE = 24 * 1024


class StageReads(Pass):
    """In: launches that name no threads. Out: in loops of two stages and more that multiply, a copy of a box
    to a fragment of two axes, and elements of a box of which each iteration of a loop over two reads one,
    read a shared tile that a copy in front fills, where TMA brings the box and a block has room for the
    loop's stages of it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its tiles staged."""
        if not has_tma(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _staged(kernel, launch, target))


def _staged(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    """A launch with such loops, whose author leaves it to others which threads do what."""
    ahead = any(isinstance(stmt, Pipelined) and _multiplies_ahead(stmt) for stmt in walk(launch.body))
    if not ahead or launch.thread_vars or has_groups(launch):
        return launch
    return _Staging(kernel, launch, target).run()


class _Staging(ScopedRewrite):
    """Rewrites the loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        assert target.gpu is not None
        self._values, self._changed = values_of(walk(launch.body)), changed_in(launch)
        self._loop: Pipelined | None = None
        self._tiles: list[Var] = []
        self._free = target.gpu.shared_bytes - _FREE - _taken(launch)

    def run(self) -> Launch:
        """The launch with its tiles."""
        body = self.block(self.launch.body)
        return self.launch_with((*map(Alloc, self._tiles), *body)) if self._tiles else self.launch

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """What a trip reads, staged."""
        if isinstance(stmt, Pipelined):
            outer, self._loop = self._loop, stmt if _multiplies_ahead(stmt) else None
            made = super().stmt(stmt)
            self._loop = outer
            return made
        if self._loop is None or stmt not in self._loop.body:
            return super().stmt(stmt)
        if isinstance(stmt, Copy):
            return self._copied(stmt)
        return self._read(stmt) if isinstance(stmt, Parallel) else super().stmt(stmt)

    def _copied(self, copy: Copy) -> list[Stmt]:
        fragment = copy.dst.buffer
        held = fragment.scope() == "local.fragment" and len(fragment.shape) == 2 and is_whole(copy.dst)
        tile = self._staged(copy.src) if held and not copy.hints.avoids_tma else None
        if tile is None:
            return [copy]
        return [replace(copy, dst=whole_tile(tile)), Copy(whole_tile(tile), copy.dst, loc=copy.loc)]

    def _read(self, loop: Parallel) -> list[Stmt]:
        """A loop over two axes behind copies of the boxes that it reads."""
        extents = [int_value(extent) or 0 for extent in loop.extents]
        if len(extents) != 2 or filled(loop) is not None:
            return [loop]
        copies: list[Stmt] = []
        read: list[tuple[TensorLoad, Expr]] = []
        every = loads_of(*walk(loop.body))
        names = values_of(walk(loop.body))
        for load in each_once(load for load in every if is_global(load.source)):
            indices = [inlined(index, names) for index in load.indices]
            box = box_of(load.source, indices, loop.vars, extents)
            tile = None if box is None else self._staged(box)
            if box is not None and tile is not None:
                copies.append(Copy(box, whole_tile(tile), loc=loop.loc))
                read.append((load, tirx.BufferLoad(tile, list(loop.vars))))
        return [*copies, with_elements(loop, read)] if copies else [loop]

    def _staged(self, box: Region) -> Var | None:
        """A tile for a box that is another one in each trip; None where TMA does not bring it, or where there
        is no room."""
        assert self._loop is not None
        moves = any(uses(inlined(each, self._values), (self._loop.var,)) for each in box.start)
        if box.buffer in self._changed or not moves:
            return None
        tile = tile_of_box(box, self._values, self.facts, "ahead")
        if tile is None or len(tile.shape) != 2:
            return None
        size = tile_bytes(Alloc(tile)) * self._loop.num_stages
        if size > self._free:
            return None
        self._free -= size
        self._tiles.append(tile)
        return tile


def _multiplies_ahead(loop: Pipelined) -> bool:
    """Whether trips of a loop multiply, and load ahead."""
    return loop.num_stages > 1 and any(isinstance(stmt, Gemm) for stmt in loop.body)


def _taken(launch: Launch) -> int:
    """Bytes of the shared tiles of a launch, with the stages of those that loops load."""
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined)]
    stages = {tile: loop.num_stages for loop in loops for tile in map(filled, loop.body) if tile is not None}
    tiles = (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    return sum(
        tile_bytes(alloc) * max(stages.get(alloc.buffer, 1), 1)
        for alloc in tiles
        if alloc.buffer.scope() == "shared.dyn"
    )
