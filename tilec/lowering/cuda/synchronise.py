"""Barriers where one thread's access of shared or global memory must wait for another's, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tilec.ir import threads
from tilec.ir.barriers import Arrive, Group
from tilec.ir.groups import ThreadSets
from tilec.ir.nodes import (
    Atomic,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    Store,
    While,
    children,
    walk,
)
from tilec.ir.returns import Rest
from tilec.ir.uniform import Uniformity
from tilec.lowering.cpu.accesses import Access, accesses
from tilec.lowering.cpu.uses import expressions
from tilec.lowering.cuda.fragments import WARP
from tilec.lowering.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    InitBarriers,
    JoinThreads,
    Sync,
    ThreadLoop,
    WaitGroup,
    WarpGemm,
    WarpSync,
)
from tilec.lowering.cuda.owners import Owner, bound_names, owner
from tilec.lowering.cuda.place_shared import sharing
from tilec.lowering.cuda.threads import thread_count, warps_of
from tilec.lowering.exprs import loads
from tilec.lowering.passes import rewrite_launches, with_children

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_LOOPS = (For, Pipelined, While)
#: The threads of a group: the first one and how many.
Span = tuple[int, int]


@dataclass(frozen=True)
class Synchronise:
    """In: statements in program order. Out: the same with Sync before every statement that reads what others
    wrote since the last one, or writes what others read or wrote. Others are other threads: loops that give
    an element to the same thread (`owners`) need none between them. Asynchronous copies count as writes from
    the wait that completes them; they land in versions that nobody reads meanwhile."""

    name: str = "synchronise"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its barriers."""
        return rewrite_launches(kernel, _synchronised)


def _synchronised(launch: Launch) -> Launch:
    owners = _Owners(warps_of(launch), bound_names(launch.body))
    around = _Around(
        sharing(launch.body),
        Uniformity(launch),
        _thread_sets(launch),
        not any(isinstance(stmt, InitBarriers) for stmt in walk(launch.body)),
    )
    return replace(launch, body=_Walker(around, owners, threads=thread_count(launch)).block(launch.body))


@dataclass(frozen=True)
class _Owners:
    """What tells the owner of an access: the warps that share the work, who they are, and the names in
    indices."""

    warps: int
    names: Mapping[Var, Expr]
    span: Span | None = None

    def use(self, item: Access, loop: ThreadLoop) -> Use:
        """An access by a loop."""
        found = owner(item, loop, self.warps, self.names)
        return Use(item.buffer, None if found is None else (self.span, found))

    def of(self, group: Group) -> _Owners:
        """Those of a group."""
        return replace(self, warps=group.count // WARP, span=(group.first, group.count))


@dataclass(frozen=True)
class Use:
    """A buffer that a statement touches; ``owner`` where one thread alone touches each of its elements."""

    buffer: Var
    owner: tuple[Span | None, Owner] | None = None

    def clashes(self, other: Use) -> bool:
        """Whether different threads may touch the same element."""
        return self.buffer.same_as(other.buffer) and (self.owner is None or self.owner != other.owner)


@dataclass(frozen=True)
class _Touched:
    """Buffers that a statement reads and writes in memory that threads share."""

    reads: frozenset[Use] = frozenset()
    writes: frozenset[Use] = frozenset()
    starts: frozenset[Use] = frozenset()

    def __or__(self, other: _Touched) -> _Touched:
        return _Touched(self.reads | other.reads, self.writes | other.writes, self.starts | other.starts)

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes or self.starts)

    def conflicts(self, later: _Touched) -> bool:
        """Whether ``later`` must wait for these accesses."""
        written = later.writes | later.starts
        return _clash(self.writes, later.reads) or _clash(self.reads | self.writes, written)


@dataclass(frozen=True)
class _Around:
    """What holds all over a launch: ``sharing`` are the tiles that lie on the bytes of another one (writing
    it is writing them); ``unordered``: no barriers of the author's order what groups do."""

    sharing: Mapping[Var, frozenset[Var]]
    uniformity: Uniformity
    sets: ThreadSets
    unordered: bool


@dataclass(frozen=True)
class _Open:
    """What was touched since the last barrier: by the threads that run a block, and by groups among them.
    ``all.starts`` are copies under way."""

    all: _Touched = field(default_factory=_Touched)
    groups: Mapping[Span, _Touched] = field(default_factory=dict)

    def __or__(self, other: _Open) -> _Open:
        spans = dict.fromkeys((*self.groups, *other.groups))
        groups = {span: self.of(span) | other.of(span) for span in spans}
        return _Open(self.all | other.all, groups)

    def of(self, span: Span) -> _Touched:
        """What a group touched."""
        return self.groups.get(span, _Touched())

    def conflicts(self, later: _Touched) -> bool:
        """Whether ``later``, by all threads, must wait."""
        return self.all.conflicts(later) or any(found.conflicts(later) for found in self.groups.values())


@dataclass
class _Walker:
    """Walks statements with what was touched since the last barrier of the ``threads`` that run them. Where
    only some of these run a block (``parted``), they cannot meet."""

    around: _Around
    owners: _Owners
    threads: int
    open: _Open = field(default_factory=_Open)
    parted: bool = False
    lanes: int = 0

    def block(self, block: Block) -> Block:
        """The block with barriers."""
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if isinstance(stmt, WaitGroup):
            before = self.open.all
            landed = _Touched(before.reads, before.writes | before.starts)
            self.open = replace(self.open, all=landed)
            return [stmt]
        if isinstance(stmt, Group):
            return self._group(stmt)
        whole = isinstance(stmt, If) or self._parts(stmt)
        own = self._spread(self._everything((stmt,)) if whole else touched(stmt, self.owners))
        barrier = self._barrier(own, stmt)
        if self._parts(stmt):
            return [*barrier, self._parted(stmt)]
        if isinstance(stmt, _LOOPS):
            return [*barrier, self._loop(stmt)]
        if isinstance(stmt, If):
            return [*barrier, self._branches(stmt)]
        if self._is_barrier(stmt):
            self._meet()
        self.open |= _Open(self._touched(stmt))
        return [*barrier, stmt]

    def _parts(self, stmt: Stmt) -> bool:
        """Whether only some of the threads run the blocks inside."""
        return not isinstance(stmt, (Group, Rest)) and self.around.uniformity.parts(stmt)

    def _is_barrier(self, stmt: Stmt) -> bool:
        """Whether the threads meet at a statement."""
        if isinstance(stmt, threads.Sync):
            everyone = stmt.count is None or stmt.count == self.threads
            return stmt.kind == "threads" and everyone and not self.parted
        if isinstance(stmt, threads.Lane):
            return stmt.kind in threads.BLOCK_VOTES
        return getattr(stmt, "scratch", None) is not None

    def _meet(self) -> None:
        self.open = _Open(_Touched(starts=self.open.all.starts))

    def _touched(self, stmt: Stmt) -> _Touched:
        return self._spread(touched(stmt, self.owners))

    def _everything(self, block: Block) -> _Touched:
        """What a block touches anywhere inside."""
        total = _Touched()
        for stmt in block:
            total |= touched(stmt, self.owners)
            if isinstance(stmt, (ThreadLoop, AsyncGather)):
                continue
            inside = replace(self, owners=self.owners.of(stmt)) if isinstance(stmt, Group) else self
            for inner in children(stmt):
                total |= inside._everything(inner)
        return total

    def _spread(self, own: _Touched) -> _Touched:
        """``own`` with the tiles that lie where it writes."""
        writes, starts = (
            uses | {Use(other) for use in uses for other in self.around.sharing.get(use.buffer, ())}
            for uses in (own.writes, own.starts)
        )
        return _Touched(own.reads, writes, starts)

    def _barrier(self, own: _Touched, stmt: Stmt) -> list[Stmt]:
        announces = self._parts(stmt) and bool(self.open.all) and _arrives(stmt)
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
        others = (found for other, found in self.open.groups.items() if other != span)
        clash = self.open.all.conflicts(own)
        clash = clash or (self.around.unordered and any(found.conflicts(own) for found in others))
        barrier: list[Stmt] = []
        if clash and not self.parted:
            self._meet()
            barrier = [Sync()]
        inner = _Walker(self.around, owners, stmt.count, _Open(self.open.of(span)), self.parted)
        made = replace(stmt, body=inner.block(stmt.body))
        self.open |= _Open(groups={span: inner._all()})
        return [*barrier, made]

    def _all(self) -> _Touched:
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
        self.open = before | _Open(self._spread(self._everything((stmt,))))
        return with_children(stmt, blocks)

    def _sides(self, stmt: Stmt) -> list[int]:
        """For each block inside the mask of the lanes that run it, if they are of one warp and known; else
        0."""
        sets = self.around.sets
        if not isinstance(stmt, If) or not sets.knows(stmt.cond):
            return [0] * len(children(stmt))
        holds = sets.holds(stmt.cond)
        if not self.parted:
            return [_one_warp(side) for side in (holds, ~holds)]
        return [_one_warp(side) & self.lanes for side in (holds, ~holds)]

    def _loop(self, stmt: Stmt) -> Stmt:
        """A loop whose trips also meet what the trip before left open."""
        before = self.open | _Open(self._touched(stmt))
        inner = children(stmt)[0]
        if any(isinstance(part, (Break, Continue)) for part in _flat(inner)):
            around = _Open(self._spread(self._everything(inner)))
        else:
            trial = replace(self, open=before)
            trial.block(inner)
            around = trial.open
        self.open = before | around
        new = with_children(stmt, [self.block(inner)])
        self.open |= before | around
        return new

    def _branches(self, stmt: If) -> Stmt:
        before = self.open | _Open(self._touched(stmt))
        ends, blocks = [], []
        for inner in children(stmt):
            self.open = before
            blocks.append(self.block(inner))
            ends.append(self.open)
        self.open = ends[0] | ends[1]
        return with_children(stmt, blocks)


def _thread_sets(launch: Launch) -> ThreadSets:
    """What is known of conditions, with all names of a launch."""
    sets = ThreadSets(launch)
    for stmt in walk(launch.body):
        if isinstance(stmt, Bind):
            sets.learn(stmt)
    return sets


def _one_warp(holds: np.ndarray) -> int:
    """The lanes for which a condition holds as a mask, if they are several of one warp; else 0."""
    threads = np.flatnonzero(holds)
    if len(threads) < 2 or threads[0] // WARP != threads[-1] // WARP:
        return 0
    return sum(1 << int(thread % WARP) for thread in threads)


def _arrives(stmt: Stmt) -> bool:
    """Whether some threads tell other groups inside of a statement that all are done."""
    return any(isinstance(inner, Arrive) for inner in walk((stmt,)))


def touched(stmt: Stmt, owners: _Owners) -> _Touched:
    """What a statement itself touches, without the blocks inside (but with a ThreadLoop's)."""
    if isinstance(stmt, ThreadLoop):
        return _loop_touches(stmt, owners)
    if isinstance(stmt, AsyncGather):
        items = accesses(stmt.body)
        reads = _shared(item.buffer for item in items if not item.is_write)
        return _Touched(reads, starts=_shared(item.buffer for item in items if item.is_write))
    reads = _shared(load.source for expr in expressions(stmt) for load in loads(expr))
    if isinstance(stmt, (Store, Atomic, JoinThreads)):
        return _Touched(reads, _shared([stmt.buffer]))
    if isinstance(stmt, AsyncCopy):
        return _Touched(reads | _shared([stmt.src.buffer]), starts=_shared([stmt.dst.buffer]))
    if isinstance(stmt, WarpGemm):
        return _Touched(reads | _shared([stmt.a.buffer, stmt.b.buffer]))
    scratch = getattr(stmt, "scratch", None)
    if scratch is not None:
        return _Touched(reads | {Use(scratch)}, _shared([scratch]))
    return _Touched(reads)


def _loop_touches(loop: ThreadLoop, owners: _Owners) -> _Touched:
    items = [item for item in accesses(loop.body) if _is_shared(item.buffer)]
    uses = [(item.is_write, owners.use(item, loop)) for item in items]
    reads, writes = (frozenset(use for is_write, use in uses if is_write == kind) for kind in (False, True))
    return _Touched(reads, writes)


def _clash(first: frozenset[Use], second: frozenset[Use]) -> bool:
    return any(use.clashes(other) for use in first for other in second)


def _flat(block: Block) -> Iterator[Stmt]:
    for stmt in block:
        yield stmt
        if not isinstance(stmt, (ThreadLoop, AsyncGather)):
            for inner in children(stmt):
                yield from _flat(inner)


def _shared(buffers: Iterable[Var]) -> frozenset[Use]:
    """Those of ``buffers`` that lie in memory other threads see."""
    return frozenset(Use(buffer) for buffer in buffers if _is_shared(buffer))


def _is_shared(buffer: Var) -> bool:
    return bool(buffer.scope() == "shared.dyn" or buffer.scope().startswith("global"))
