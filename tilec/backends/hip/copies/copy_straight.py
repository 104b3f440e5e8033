"""Loads of pipelined loops go straight to shared memory, one trip ahead, on chips whose lanes copy there.

Two stages take twice the shared memory, which loads held in registers do not, and a lane that has 16 bytes at
once takes four instructions for them where pieces are of 4, and two by registers (a load, and a store to
shared memory). So loops go straight unasked in no smaller pieces than they move at once, and on chips alone
whose compute units have shared memory for two such blocks; elsewhere where their author asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.pipelines.loads_ahead import CopyLoad, Load, load_of
from tilec.backends.cuda.nodes import AsyncCopy
from tilec.backends.cuda.passes.loads.plan_pipeline import Planner
from tilec.backends.cuda.passes.waits.place_shared import shared_tiles
from tilec.backends.hip.chips import chip_of
from tilec.backends.hip.copies.emit import REACH
from tilec.backends.hip.copies.nodes import LaneCopy
from tilec.ir.hints import Hints
from tilec.ir.nodes import Kernel, Launch, Pipelined, Stmt
from tilec.ir.nodes.barriers import Group
from tilec.ir.roads import TO_SHARED
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

#: What an author asks of a copy that is to take no registers.
_ASKED = Hints(prefer_instruction="cp_async")
#: Versions of a tile: a barrier waits for all copies of a wave, so that further ones would gain nothing.
_STAGES = 2


class CopyStraight(Pass):
    """In: Pipelined loops. Out: where the lanes of the target write pieces of shared memory, a loop of two
    stages or more all of whose loads are copies of such pieces is a serial one: its loads are LaneCopy
    statements that run a trip ahead, into the other one of two versions of their tiles. Other loops stay
    pipelined, and so do those whose tiles would not fit twice, and those of which nobody asks it where pieces
    are smaller than what moves at once or shared memory is scarce."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with these loops spelled out."""
        if not chip_of(target).lane_bytes:
            return kernel
        return rewrite_launches(kernel, lambda launch: _Straight(kernel, launch, target).run())


class _Straight(Planner):
    """Rewrites the loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch, target, REACH - sum(map(tile_bytes, shared_tiles(launch.body))))
        self.chip = chip_of(target)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Loops that cannot have all of their loads so stay."""
        if isinstance(stmt, Group) or not isinstance(stmt, Pipelined):
            return [stmt] if isinstance(stmt, Group) else super().stmt(stmt)
        self._learn(stmt)
        found = self._straight(stmt)
        return self._pipelined(stmt, found) if found else ScopedRewrite.stmt(self, stmt)

    def started(self, copy: Stmt) -> Stmt:
        """A copy of lanes."""
        assert isinstance(copy, AsyncCopy)
        return LaneCopy(copy.src, copy.dst, copy.width, loc=copy.loc)

    def _pipelined(self, loop: Pipelined, found: list[tuple[Load, int]]) -> list[Stmt]:
        self.room -= _bytes(found)
        self.roads += [
            road_of(load.stmt, TO_SHARED, f"global_load_lds of {_size(load, width)} bytes, 1 trip ahead")
            for load, width in found
        ]
        if loop.num_stages > _STAGES:
            asked = f"num_stages = {loop.num_stages} asks for {loop.num_stages - 1} trips ahead"
            self.notes.append(f"{asked}: copies to shared memory run 1 ahead")
        return self._pipeline(replace(loop, num_stages=_STAGES), found)

    def _straight(self, loop: Pipelined) -> list[tuple[Load, int]]:
        """The loads of a loop with their widths; nothing where one of them goes another way."""
        loads = [stmt for stmt in loop.body if load_of(stmt) is not None]
        if not loads or thread_count(self.launch) % self.chip.lanes or not self._may_be_ahead(loop):
            return []
        judged = self._judged(loop)
        found = [(load, piece) for load, width in judged if (piece := self._piece(load, width))]
        if len(found) != len(loads) or _bytes(found) > self.room:
            return []
        unasked = found == judged and self.chip.shared_bytes >= 2 * REACH
        return found if unasked or all(load.hints == _ASKED for load, _ in found) else []

    def _may_be_ahead(self, loop: Pipelined) -> bool:
        roads, self.roads = self.roads, []
        may = self._asks_for_stages(loop)
        self.roads = roads
        return may

    def _judged(self, loop: Pipelined) -> list[tuple[Load, int]]:
        """As `Planner` judges them, which says nothing here: other passes may take the loop."""
        roads, self.roads = self.roads, []
        found = self._loads(loop)
        self.roads = roads
        return found

    def _piece(self, load: Load, width: int) -> int:
        """Elements that a lane copies at once of ``width`` neighbours; 0 where lanes do not fill a tile in
        its own order."""
        hints, element = load.hints, element_bytes(str(load.tile.dtype))
        if not isinstance(load, CopyLoad) or self._asked(load.tile) is not None:
            return 0
        if hints.given and hints != _ASKED:
            return 0
        sizes = (size for size in self.chip.lane_bytes if width * element % size == 0 and size % element == 0)
        return next(sizes, 0) // element


def _size(load: Load, width: int) -> int:
    return width * element_bytes(str(load.tile.dtype))


def _bytes(found: list[tuple[Load, int]]) -> int:
    """What a further version of their tiles takes."""
    return sum(load.bytes for load, _ in found)
