"""Copies to shared memory outside of pipelined loops run beside what stands in front of their readers.

    copy(X, one); copy(Y, other); work; read one; read other
    ->
    async_copy(X, one); async_copy(Y, other); work; wait_group(1); read one; wait_group(0); read other

Threads then have all of a row under way without a register for it, and wait as late as they can.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.low_places import is_dense, place_width
from tilec.backends.cuda.analysis.accesses.vectors import widest
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.pipelines.asked_hints import said
from tilec.backends.cuda.analysis.pipelines.loads_ahead import CopyLoad, async_elements, async_width, load_of
from tilec.backends.cuda.nodes import AsyncCopy, CommitGroup, WaitGroup
from tilec.ir.analysis.jumps import jumps
from tilec.ir.nodes import PRODUCTS, Block, If, Kernel, Launch, Pipelined, Stmt, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import LaneMma, Sync
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import touches, with_overlapping, written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Bytes of one cp.async that goes past L1, as narrower ones do not.
WHOLE_BYTES = 16
#: What multiplies, and groups of warps: such launches bring their tiles in other ways.
_OTHERS = (*PRODUCTS, LaneMma, Group)


class StartCopies(Pass):
    """In: copies of whole shared tiles, by 16 bytes (of rows that begin anywhere where the copy begins at a
    multiple of that, or the key ``phase`` has that tested) or as their author asks, with other statements
    between them and their first readers, outside of pipelined loops and in launches without products. Out:
    AsyncCopies, each a group that is complete where a statement first uses its tile: all of them are under
    way at once, and no register holds what comes."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its copies started."""
        return rewrite_launches(kernel, lambda launch: _Starter(kernel, launch).run())


class _Starter(ScopedRewrite):
    """Rewrites the blocks of one launch."""

    def run(self) -> Launch:
        """The rewritten launch."""
        self._roads: list[Road] = []
        self._read_later: set[Stmt] = set()
        if any(isinstance(stmt, _OTHERS) for stmt in walk(self.launch.body)):
            return self.launch
        return with_roads(super().run(), self._roads)

    def block(self, block: Block) -> Block:
        """The block with waits in front of those who use what comes."""
        for index, stmt in enumerate(block):
            load = load_of(stmt)
            if load is not None and _first(load.tile, block[index + 1 :]) > 0:
                self._read_later.add(stmt)
        return self._with_waits(super().block(block))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Copies start; pipelined loops have groups of their own, and not all threads may take a branch."""
        if isinstance(stmt, (Pipelined, If)):
            return [stmt]
        load = load_of(stmt)
        if not isinstance(load, CopyLoad) or stmt not in self._read_later:
            return super().stmt(stmt)
        copy = self._started(load)
        if copy is None:
            return super().stmt(stmt)
        size = copy.width * element_bytes(str(copy.dst.buffer.dtype))
        ends = ", the ends of rows element by element" if copy.ends else ""
        self._roads.append(
            road_of(stmt, "cp.async", f"cp.async of {size} bytes, up to its first reader{ends}")
        )
        self._roads += said(stmt, load.stmt.hints, "cp.async", copy.width)
        return [copy, CommitGroup()]

    def _started(self, load: CopyLoad) -> AsyncCopy | None:
        """The copy in pieces of 16 bytes, or of fewer where the author asks for that; None where it cannot be
        or shall not."""
        hints, each = load.stmt.hints, element_bytes(str(load.tile.dtype))
        if hints.prefer_instruction == "sync":
            return None
        width = async_elements(load, {}, self.facts, None)
        if width * each == WHOLE_BYTES:
            return load.asynchronous(width, {}, {}, self.facts)
        if (
            not hints.coalesced_width
            and async_width(load.stmt, self.facts, self._anywhere) * each == WHOLE_BYTES
        ):
            return replace(load.asynchronous(WHOLE_BYTES // each, {}, {}, self.facts), ends=True)
        if not width or hints.prefer_instruction != "cp_async":
            return None
        return load.asynchronous(width, {}, {}, self.facts)

    def _anywhere(self, buffer: Var, indices: Sequence[Expr], var: Var, limit: int, facts: Facts) -> int:
        """By how many elements a row that begins anywhere is read: with the key ``phase`` wherever these are
        tested to begin at a multiple, else where that is known."""
        if self.launch.schedule.phase and is_dense(buffer):
            return widest(buffer, limit)
        return place_width(buffer, indices, var, limit, facts)

    def _with_waits(self, block: Block) -> Block:
        """Waits for groups, the oldest first: up to the last one that a statement meets. A barrier of the
        author's is for what was copied: it meets what the statements up to the next one do."""
        made: list[Stmt] = []
        under_way: list[AsyncCopy] = []
        for index, stmt in enumerate(block):
            users = self._up_to_barrier(block[index:])
            met = [
                number
                for number, copy in enumerate(under_way)
                if any(self._meets(user, copy) for user in users)
            ]
            if met:
                under_way = under_way[met[-1] + 1 :]
                made.append(WaitGroup(len(under_way)))
            made.append(stmt)
            if isinstance(stmt, AsyncCopy):
                under_way.append(stmt)
        return tuple(made)

    def _meets(self, stmt: Stmt, copy: AsyncCopy) -> bool:
        """Whether a statement uses the tile of a copy, writes where that reads, or may leave the trip in
        which the copy is waited for."""
        changed = with_overlapping(written_in((stmt,)), self.launch)
        leaves = any(True for _ in jumps(stmt))
        return leaves or touches(stmt, copy.dst.buffer) or copy.src.buffer in changed

    def _up_to_barrier(self, block: Block) -> Block:
        """The first statement of a block, with those up to the next barrier of the author's if it is one."""
        first, *behind = block
        ahead = takewhile(lambda stmt: not self._is_barrier(stmt), behind) if self._is_barrier(first) else ()
        return (first, *ahead)

    def _is_barrier(self, stmt: Stmt) -> bool:
        """Whether all threads of a block meet at a statement, as the author says."""
        return isinstance(stmt, Sync) and stmt.is_of_all(thread_count(self.launch))


def _first(tile: Var, block: Block) -> int:
    """How many statements of a block stand in front of the first that uses a tile; -1 where none does."""
    return next((index for index, stmt in enumerate(block) if touches(stmt, tile)), -1)
