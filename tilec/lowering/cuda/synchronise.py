"""Barriers where one thread's access of shared or global memory must wait for another's, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import (
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
)
from tilec.lowering.cpu.accesses import Access, accesses
from tilec.lowering.cpu.uses import expressions
from tilec.lowering.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    BlockReduce,
    BlockScan,
    Sync,
    ThreadLoop,
    WaitGroup,
    WarpGemm,
)
from tilec.lowering.cuda.owners import Owner, bound_names, owner
from tilec.lowering.cuda.place_shared import sharing
from tilec.lowering.cuda.threads import warps_of
from tilec.lowering.exprs import loads
from tilec.lowering.passes import rewrite_launches, with_children

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_LOOPS = (For, Pipelined, While)


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
    return replace(launch, body=_Walker(sharing(launch.body), owners).block(launch.body))


@dataclass(frozen=True)
class _Owners:
    """What tells the owner of an access: warps of a block and the names in indices."""

    warps: int
    names: Mapping[Var, Expr]

    def use(self, item: Access, loop: ThreadLoop) -> Use:
        """An access by a loop."""
        return Use(item.buffer, owner(item, loop, self.warps, self.names))


@dataclass(frozen=True)
class Use:
    """A buffer that a statement touches; ``owner`` where one thread alone touches each of its elements."""

    buffer: Var
    owner: Owner | None = None

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

    def conflicts(self, later: _Touched) -> bool:
        """Whether ``later`` must wait for these accesses."""
        written = later.writes | later.starts
        return _clash(self.writes, later.reads) or _clash(self.reads | self.writes, written)


@dataclass
class _Walker:
    """Walks statements with what was touched since the last barrier; ``open.starts`` are copies under way.
    ``sharing`` are the tiles that lie on the bytes of another one: writing it is writing them."""

    sharing: Mapping[Var, frozenset[Var]]
    owners: _Owners
    open: _Touched = field(default_factory=_Touched)

    def block(self, block: Block) -> Block:
        """The block with barriers."""
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if isinstance(stmt, WaitGroup):
            self.open = _Touched(self.open.reads, self.open.writes | self.open.starts)
            return [stmt]
        own = self._spread(self._everything((stmt,)) if isinstance(stmt, If) else touched(stmt, self.owners))
        barrier = self._barrier(own)
        if isinstance(stmt, _LOOPS):
            return [*barrier, self._loop(stmt)]
        if isinstance(stmt, If):
            return [*barrier, self._branches(stmt)]
        if isinstance(stmt, (BlockReduce, BlockScan)) and stmt.scratch is not None:
            self.open = _Touched(starts=self.open.starts)
        self.open |= self._touched(stmt)
        return [*barrier, stmt]

    def _touched(self, stmt: Stmt) -> _Touched:
        return self._spread(touched(stmt, self.owners))

    def _everything(self, block: Block) -> _Touched:
        """What a block touches anywhere inside."""
        total = _Touched()
        for stmt in _flat(block):
            total |= touched(stmt, self.owners)
        return total

    def _spread(self, own: _Touched) -> _Touched:
        """``own`` with the tiles that lie where it writes."""
        writes, starts = (
            uses | {Use(other) for use in uses for other in self.sharing.get(use.buffer, ())}
            for uses in (own.writes, own.starts)
        )
        return _Touched(own.reads, writes, starts)

    def _barrier(self, own: _Touched) -> list[Stmt]:
        if not self.open.conflicts(own):
            return []
        self.open = _Touched(starts=self.open.starts)
        return [Sync()]

    def _loop(self, stmt: Stmt) -> Stmt:
        """A loop whose trips also meet what the trip before left open."""
        before = self.open | self._touched(stmt)
        inner = children(stmt)[0]
        if any(isinstance(part, (Break, Continue)) for part in _flat(inner)):
            around = self._spread(self._everything(inner))
        else:
            trial = _Walker(self.sharing, self.owners, before)
            trial.block(inner)
            around = trial.open
        self.open = before | around
        new = with_children(stmt, [self.block(inner)])
        self.open |= before | around
        return new

    def _branches(self, stmt: If) -> Stmt:
        before = self.open | self._touched(stmt)
        ends, blocks = [], []
        for inner in children(stmt):
            self.open = before
            blocks.append(self.block(inner))
            ends.append(self.open)
        self.open = ends[0] | ends[1]
        return with_children(stmt, blocks)


def touched(stmt: Stmt, owners: _Owners) -> _Touched:
    """What a statement itself touches, without the blocks inside (but with a ThreadLoop's)."""
    if isinstance(stmt, ThreadLoop):
        return _loop_touches(stmt, owners)
    if isinstance(stmt, AsyncGather):
        items = accesses(stmt.body)
        reads = _shared(item.buffer for item in items if not item.is_write)
        return _Touched(reads, starts=_shared(item.buffer for item in items if item.is_write))
    reads = _shared(load.source for expr in expressions(stmt) for load in loads(expr))
    if isinstance(stmt, Store):
        return _Touched(reads, _shared([stmt.buffer]))
    if isinstance(stmt, AsyncCopy):
        return _Touched(reads | _shared([stmt.src.buffer]), starts=_shared([stmt.dst.buffer]))
    if isinstance(stmt, WarpGemm):
        return _Touched(reads | _shared([stmt.a.buffer, stmt.b.buffer]))
    if isinstance(stmt, (BlockReduce, BlockScan)) and stmt.scratch is not None:
        return _Touched(reads | {Use(stmt.scratch)}, _shared([stmt.scratch]))
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
