"""Barriers where one thread's access of shared or global memory must wait for another's, and nowhere else.

    for i in threads(64): S[i] = X[i]                        for i in threads(64): S[i] = X[i]
    for i in threads(64): Y[i] = S[63 - i]        ->         sync_threads()
                                                             for i in threads(64): Y[i] = S[63 - i]

The launch is walked in program order with what was touched since the last barrier (`touches`): a statement
that would meet some of it as another thread's gets a barrier in front. A trip also meets what the trip before
has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from tilec.backends.cuda.analysis.accesses.touches import Open, Owners, Touched, Use, touched
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.nodes import (
    REPEATING,
    AsyncGather,
    GridMeet,
    InitBarriers,
    ProductsWait,
    Sync,
    ThreadLoop,
    WaitGroup,
    WarpSync,
)
from tilec.backends.cuda.passes.waits.place_shared import sharing
from tilec.ir.analysis.threads.groups import ThreadSets
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Launch,
    Rest,
    Stmt,
    Store,
    While,
    children,
    threads,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Arrive, ClusterBarrier, Group, NamedArrive
from tilec.ir.traits import scratch
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.analysis.thread_hazards import Hazards
from tilec.lowering.analysis.uses import overlapping
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var


@dataclass(frozen=True)
class Synchronise(LaunchPass):
    """In: statements in program order. Out: the same with Sync before every statement that reads what others
    wrote since the last one, or writes what others read or wrote. Others are other threads: loops that give
    an element to the same thread (`owners`) need none between them, nor trips of a loop that take versions of
    a tile in turns (`turns`). Asynchronous copies count as writes from the wait that completes them; they
    land in versions that nobody reads meanwhile. ``whole_warps``: lanes can wait for all of their warp
    alone."""

    whole_warps: bool = False

    def launch(self, launch: Launch) -> Launch:
        """The launch with its barriers."""
        owners = Owners.in_launch(launch)
        around = _Around(
            _sharing(launch),
            Uniformity(launch),
            _thread_sets(launch),
            not _orders_groups(launch.body),
            _hazards(launch),
            self.whole_warps,
        )
        return replace(launch, body=_Walker(around, owners, threads=thread_count(launch)).block(launch.body))


def _hazards(launch: Launch) -> Hazards | None:
    """What tells where threads meet that do things one by one; None where the author does not name them."""
    if not launch.thread_vars:
        return None
    return Hazards(ThreadGrid.of(launch), launch.body, Uniformity(launch))


def _orders_groups(body: Block) -> bool:
    """Whether the author orders what groups do: by barriers in memory, or by named ones at which groups meet
    others."""
    stmts = list(walk(body))
    if any(isinstance(stmt, (InitBarriers, NamedArrive)) for stmt in stmts):
        return True
    return any(_meets_others(inner, group) for group in stmts if isinstance(group, Group)
               for inner in walk(group.body))  # fmt: skip


def _meets_others(stmt: Stmt, group: Group) -> bool:
    named = isinstance(stmt, threads.Sync) and stmt.barrier is not None
    return named and (getattr(stmt, "count", None) or 0) > group.count


def _sharing(launch: Launch) -> Mapping[Var, frozenset[Var]]:
    """The tiles that lie on the bytes of another one, and the tensors that may."""
    found = dict(sharing(launch.body))
    for tensor in overlapping(launch):
        found[tensor] = overlapping(launch) - {tensor}
    return found


#: What threads do each for itself.
_ONE_BY_ONE = (Alloc, Atomic, Bind, For, If, Store)


@dataclass(frozen=True)
class _Around:
    """What holds all over a launch: ``sharing`` are the tiles and tensors that lie on the bytes of another
    one (writing it is writing them); ``unordered``: no barriers of the author's order what groups do;
    ``hazards``: where threads meet that do things one by one; ``whole_warps``: of the lanes of a warp all
    can meet, and no others."""

    sharing: Mapping[Var, frozenset[Var]]
    uniformity: Uniformity
    sets: ThreadSets
    unordered: bool
    hazards: Hazards | None
    whole_warps: bool

    def lanes(self, holds: np.ndarray) -> int:
        """The lanes for which a condition holds as a mask, if they are several of one warp that can meet;
        else 0."""
        threads = np.flatnonzero(holds)
        if len(threads) < (WARP if self.whole_warps else 2) or threads[0] // WARP != threads[-1] // WARP:
            return 0
        return sum(1 << int(thread % WARP) for thread in threads)


@dataclass
class _Walker:
    """Walks statements with what was touched since the last barrier of the ``threads`` that run them. Where
    only some of these run a block (``parted``), they cannot meet. ``header`` is what the innermost loop
    touches between its trips."""

    around: _Around
    owners: Owners
    threads: int
    open: Open = field(default_factory=Open)
    parted: bool = False
    lanes: int = 0
    header: Touched = field(default_factory=Touched)

    def block(self, block: Block) -> Block:
        """The block with barriers."""
        made: list[Stmt] = []
        for index, stmt in enumerate(block):
            if isinstance(stmt, Group):
                made += self._before_groups(block[index:])
            made += self._stmt(stmt)
            if _meets_cluster(block[: index + 1]) and not self.parted:
                self._meet()
        return tuple(made)

    def _before_groups(self, block: Block) -> list[Stmt]:
        """A barrier in front of groups that follow each other where any of them needs one: behind the first
        they may wait for each other."""
        groups = list(takewhile(lambda stmt: isinstance(stmt, (Group, Bind)), block))
        clash = any(self.open.all.conflicts(self._spread(self._everything((stmt,)))) for stmt in groups)
        if not clash or self.parted:
            return []
        self._meet()
        return [Sync()]

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if isinstance(stmt, WaitGroup):
            before = self.open.all
            still = before.starts if stmt.pending else frozenset()
            self.open = replace(self.open, all=before.landed(still))
            return [stmt]
        if isinstance(stmt, ProductsWait):
            self.open |= Open(self._touched(stmt))
            return [stmt]
        if isinstance(stmt, Group):
            return self._group(stmt)
        free = self._runs_free(stmt)
        whole = isinstance(stmt, If) or self._parts(stmt) or free
        own = self._spread(self._everything((stmt,)) if whole else touched(stmt, self.owners))
        own |= self.header if isinstance(stmt, Continue) else Touched()
        barrier = self._barrier(own, announces=self._parts(stmt) and bool(self.open.all) and _arrives(stmt))
        if self._parts(stmt):
            return [*barrier, self._parted(stmt)]
        if free:
            self.open |= Open(own)
            return [*barrier, stmt]
        if isinstance(stmt, REPEATING):
            return [*barrier, *self._in_front(stmt), self._loop(stmt)]
        if isinstance(stmt, If):
            return [*barrier, self._branches(stmt)]
        if self._is_barrier(stmt):
            self._meet()
        self.open |= Open(self._touched(stmt))
        return [*barrier, stmt]

    def _parts(self, stmt: Stmt) -> bool:
        """Whether only some of the threads run the blocks inside."""
        return not isinstance(stmt, (Group, Rest)) and self.around.uniformity.parts(stmt)

    def _runs_free(self, stmt: Stmt) -> bool:
        """Whether threads one by one run a loop in which nobody has to wait, although its trips touch one
        tile: columns behind the one that they read, places that atomic updates hand out."""
        hazards = self.around.hazards
        if hazards is None or not isinstance(stmt, For) or self.parted or self._parts(stmt):
            return False
        if not all(isinstance(inner, _ONE_BY_ONE) and not _is_left(inner) for inner in walk((stmt,))):
            return False
        own = self._everything((stmt,))
        tiles = {use.buffer for use in own.reads | own.writes}
        on_others = any(tiles & self.around.sharing.get(tile, frozenset()) for tile in tiles)
        return own.conflicts(own) and not on_others and not hazards.anywhere(stmt)

    def _is_barrier(self, stmt: Stmt) -> bool:
        """Whether the threads meet at a statement."""
        if isinstance(stmt, threads.Sync):
            return stmt.is_of_all(self.threads) and not self.parted
        if isinstance(stmt, threads.Lane):
            return stmt.kind in threads.BLOCK_VOTES
        if isinstance(stmt, GridMeet):
            return not self.parted
        return bool(scratch(stmt))

    def _meet(self) -> None:
        self.open = Open(Touched(starts=self.open.all.starts))

    def _touched(self, stmt: Stmt) -> Touched:
        return self._spread(touched(stmt, self.owners))

    def _everything(self, block: Block) -> Touched:
        """What a block touches anywhere inside."""
        total = Touched()
        for stmt in block:
            total |= touched(stmt, self.owners)
            if isinstance(stmt, (ThreadLoop, AsyncGather)):
                continue
            inside = replace(self, owners=self.owners.of(stmt)) if isinstance(stmt, Group) else self
            for inner in children(stmt):
                total |= inside._everything(inner)
        return total

    def _spread(self, own: Touched) -> Touched:
        """``own`` with the tiles that lie where it writes."""
        writes, starts = (
            uses | {Use(other) for use in uses for other in self.around.sharing.get(use.buffer, ())}
            for uses in (own.writes, own.starts)
        )
        return Touched(own.reads, writes, starts)

    def _barrier(self, own: Touched, announces: bool = False) -> list[Stmt]:
        if not (self.open.conflicts(own) or announces) or (self.parted and not self.lanes):
            return []
        self._meet()
        return [WarpSync(self.lanes)] if self.parted else [Sync()]

    def _group(self, stmt: Group) -> list[Stmt]:
        """Code of some of the threads: they meet among themselves. What other groups do is ordered by the
        author, where there are barriers for that."""
        span = (stmt.first, stmt.count)
        owners = self.owners.of(stmt)
        own = self._spread(replace(self, owners=owners)._everything(stmt.body))
        others = (found for other, found in self.open.seen.items() if other != span)
        clash = self.open.all.conflicts(own)
        clash = clash or (self.around.unordered and any(found.conflicts(own) for found in others))
        barrier: list[Stmt] = []
        if clash and not self.parted:
            self._meet()
            barrier = [Sync()]
        inner = _Walker(self.around, owners, stmt.count, Open(self.open.of(span)), self.parted)
        made = replace(stmt, body=inner.block(stmt.body))
        self.open |= Open(groups={span: inner._all()}, seen={span: own.landed(frozenset())})
        return [*barrier, made]

    def _all(self) -> Touched:
        """What was touched by anyone."""
        total = self.open.all
        for found in self.open.groups.values():
            total |= found
        return total

    def _parted(self, stmt: Stmt) -> Stmt:
        """A branch or loop that only some threads take, or take so often. Lanes of one warp can meet in
        it."""
        outer, sides = (self.parted, self.lanes), self._sides(stmt)
        self.parted, before = True, self.open
        blocks = []
        for inner, lanes in zip(children(stmt), sides, strict=True):
            self.open, self.lanes = before, lanes
            blocks.append(self.block(inner))
        self.parted, self.lanes = outer
        self.open = before | Open(self._spread(self._everything((stmt,))))
        return with_children(stmt, blocks)

    def _sides(self, stmt: Stmt) -> list[int]:
        """For each block inside the mask of the lanes that run it, if they are of one warp, known and can
        meet; else 0."""
        sets = self.around.sets
        if not isinstance(stmt, If) or not sets.knows(stmt.cond):
            return [0] * len(children(stmt))
        holds = sets.holds(stmt.cond)
        if not self.parted:
            return [self.around.lanes(side) for side in (holds, ~holds)]
        return [self.around.lanes(side) & self.lanes for side in (holds, ~holds)]

    def _loop(self, stmt: Stmt) -> Stmt:
        """A loop whose trips also meet what the trip before left open."""
        before, outer = self.open | Open(self._touched(stmt)), self.header
        self.header = self._touched(stmt) if isinstance(stmt, While) else Touched()
        inner = children(stmt)[0]
        if any(isinstance(part, (Break, Continue)) for part in _flat(inner)):
            within = self._spread(self._everything(inner))
            around = Open(within.landed(within.starts))
            new = self._last_trip(stmt, before | around)
        elif isinstance(stmt, For) and not self.parted:
            new = self._counted(stmt, before)
        else:
            around = self._left_by_trip(inner, before)
            new = self._last_trip(stmt, before | around)
        self.header = outer
        return new

    def _counted(self, loop: For, before: Open) -> Stmt:
        """A loop whose trips all threads count alike: versions that they take in turns are told apart. Those
        that two trips leave open are others than those of one, where no trip meets."""
        owners = self.owners
        self.owners = replace(owners, trips=(*owners.trips, loop.var))
        around, step, known = Open(), int_value(loop.step), -1
        while known != (known := around.count_versions(loop.var)):
            around |= self._left_by_trip(loop.body, before | around).behind(loop.var, step)
        new = self._last_trip(loop, before | around)
        self.open, self.owners = self.open.behind(loop.var, None), owners
        return new

    def _left_by_trip(self, block: Block, before: Open) -> Open:
        """What a trip leaves open."""
        trial = replace(self, open=before)
        trial._trip(block)
        return trial.open

    def _last_trip(self, loop: Stmt, before: Open) -> Stmt:
        """The loop, whose trips find open what is open before any of them."""
        self.open = before
        new = with_children(loop, [self._trip(children(loop)[0])])
        self.open |= before
        return new

    def _trip(self, block: Block) -> Block:
        """The body of a loop, the barrier in front of its next condition behind it."""
        return (*self.block(block), *self._barrier(self.header))

    def _in_front(self, stmt: Stmt) -> list[Stmt]:
        """A barrier in front of a loop whose trips would meet once more for what stands there alone."""
        if self.parted or not (
            self._meets_of_nest(stmt) if _holds_loops(stmt) else self._meets_of_loop(stmt)
        ):
            return []
        self._meet()
        return [Sync()]

    def _meets_of_loop(self, stmt: Stmt) -> bool:
        """Whether trips of an innermost loop meet more often than behind a barrier."""
        as_it_is, behind = replace(self), replace(self)
        behind._meet()
        return _meetings(as_it_is._loop(stmt)) > _meetings(behind._loop(stmt))

    def _meets_of_nest(self, stmt: Stmt) -> bool:
        """Whether loops in a loop must wait for what stands in front of them, for nothing of their own."""
        within = self._spread(self._everything((stmt,)))
        if within.starts or within.conflicts(within) or not self.open.conflicts(within):
            return False
        return not any(self._is_barrier(part) or isinstance(part, WaitGroup) for part in _flat((stmt,)))

    def _branches(self, stmt: If) -> Stmt:
        before = self.open | Open(self._touched(stmt))
        ends, blocks = [], []
        for inner in children(stmt):
            self.open = before
            blocks.append(self.block(inner))
            ends.append(self.open)
        self.open = ends[0] | ends[1]
        return with_children(stmt, blocks)


def _meets_cluster(block: Block) -> bool:
    """Whether a block ends where all threads of a cluster have told each other what they did."""
    last = [stmt.kind for stmt in block[-2:] if isinstance(stmt, ClusterBarrier)]
    return last == ["arrive", "wait"]


def _holds_loops(stmt: Stmt) -> bool:
    return any(isinstance(part, REPEATING) for part in _flat(children(stmt)[0]))


def _meetings(stmt: Stmt) -> int:
    """How often the threads of a group meet within a statement."""
    return sum(isinstance(inner, Sync) for inner in walk((stmt,)))


def _thread_sets(launch: Launch) -> ThreadSets:
    """What is known of conditions, with all names of a launch."""
    sets = ThreadSets(launch)
    for stmt in walk(launch.body):
        if isinstance(stmt, Bind):
            sets.learn(stmt)
    return sets


def _is_left(stmt: Stmt) -> bool:
    """Whether an atomic leaves a value, the last of which counts: updates may come in any order."""
    return isinstance(stmt, Atomic) and stmt.kind == "store"


def _arrives(stmt: Stmt) -> bool:
    """Whether some threads tell other groups inside of a statement that all are done."""
    return any(isinstance(inner, Arrive) for inner in walk((stmt,)))


def _flat(block: Block) -> Iterator[Stmt]:
    for stmt in block:
        yield stmt
        if not isinstance(stmt, (ThreadLoop, AsyncGather)):
            for inner in children(stmt):
                yield from _flat(inner)
