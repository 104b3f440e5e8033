"""What statements touch in memory that threads share, and whether others must wait for it.

A `Use` is a buffer that a statement reads or writes, with whose elements it touches where that is known: two
statements in which each thread touches elements of its own need no barrier between them, nor do two that
touch different columns. `Open` is what was touched since the last barrier; `Synchronise` asks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.owners import Each, Known, Owner, in_loop, owner
from tilec.backends.cuda.analysis.accesses.reach import Box, are_apart, reach, widened
from tilec.backends.cuda.analysis.blocks.threads import warps_of
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.pipelines.turns import Turn
from tilec.backends.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    BoxLoad,
    BringOperand,
    BringPlaces,
    HeldProduct,
    JoinThreads,
    PartStore,
    ProductsWait,
    ScaledWarpGemm,
    SparseWarpGemm,
    TensorProduct,
    TensorStore,
    ThreadLoop,
    TurnTile,
    WarpGemm,
)
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Atomic, Stmt, Store, is_global
from tilec.ir.traits import loads_of, scratch
from tilec.lowering.analysis.accesses import Access, accesses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch, Region
    from tilec.ir.nodes.barriers import Group

#: The threads of a group: the first one and how many.
Span = tuple[int, int]


@dataclass(frozen=True)
class Owners:
    """What tells the owner of an access: the warps that share the work, who they are, what is known of
    variables in indices, and the threads of the launch, where these have indices. ``trips``: what the loops
    around count, where all threads count alike."""

    warps: int
    known: Known
    each: Each | None = None
    span: Span | None = None
    trips: tuple[Var, ...] = ()

    @staticmethod
    def in_launch(launch: Launch) -> Owners:
        """Those of all threads of a launch."""
        return Owners(warps_of(launch), Known.of(launch), Each.of(launch))

    def use(self, item: Access, loop: ThreadLoop | None = None) -> Use:
        """An access by a loop; without one, by threads one by one."""
        among = loop or self.each
        if among is None:
            return Use(item.buffer, turn=self._turn(item.indices))
        warps = self.warps if isinstance(among, ThreadLoop) else among.warps
        named = in_loop(item, among, self.known)
        found = owner(named, among, warps, self.known)
        box = reach(named, among, self.known, self.span)
        return Use(item.buffer, None if found is None else (self.span, found), self._turn(item.indices), box)

    def part(self, region: Region) -> Use:
        """A part of a buffer, which threads touch together."""
        extents = zip(region.start, region.extent, strict=True)
        single = (start if int_value(extent) == 1 else None for start, extent in extents)
        return Use(region.buffer, turn=self._turn(single), box=self._box(region))

    def _box(self, region: Region) -> Box:
        sizes = map(int_value, region.extent)
        return tuple(
            None if size is None else widened(self.known.bound(start), size - 1)
            for start, size in zip(region.start, sizes, strict=True)
        )

    def _turn(self, indices: Iterable[Expr | None]) -> Turn | None:
        return Turn.of(indices, self.known.names, self.trips) if self.trips else None

    def of(self, group: Group) -> Owners:
        """Those of a group."""
        return replace(self, warps=group.count // WARP, span=(group.first, group.count))


@dataclass(frozen=True)
class Use:
    """A buffer that a statement touches; ``owner`` where one thread alone touches each of its elements,
    ``turn`` where they are those of a version that trips of a loop take in turns, ``box`` between which
    numbers their indices lie."""

    buffer: Var
    owner: tuple[Span | None, Owner] | None = None
    turn: Turn | None = None
    box: Box = ()

    def clashes(self, other: Use) -> bool:
        """Whether different threads may touch the same element."""
        if not self.buffer.same_as(other.buffer) or self._is_apart(other):
            return False
        return self.owner is None or self.owner != other.owner

    def _is_apart(self, other: Use) -> bool:
        if self.turn is not None and other.turn is not None and self.turn.differs(other.turn):
            return True
        return are_apart(self.box, other.box)

    def behind(self, trip: Var, step: int | None) -> Use:
        """The use, told by the next trip of a loop that counts by ``step``; without one, by no trip."""
        if self.turn is None or not self.turn.trip.same_as(trip):
            return self
        return replace(self, turn=None if step is None else self.turn.later(step))


@dataclass(frozen=True)
class Touched:
    """Buffers that a statement reads and writes in memory that threads share."""

    reads: frozenset[Use] = frozenset()
    writes: frozenset[Use] = frozenset()
    starts: frozenset[Use] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.reads | other.reads, self.writes | other.writes, self.starts | other.starts)

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes or self.starts)

    def landed(self, still: frozenset[Use]) -> Touched:
        """With copies under way, but for ``still``, as the writes that they end in."""
        return Touched(self.reads, self.writes | self.starts, still)

    def behind(self, trip: Var, step: int | None) -> Touched:
        """As `Use.behind`."""
        kinds = (self.reads, self.writes, self.starts)
        return Touched(*(frozenset(use.behind(trip, step) for use in uses) for uses in kinds))

    def conflicts(self, later: Touched) -> bool:
        """Whether ``later`` must wait for these accesses."""
        written = later.writes | later.starts
        return _clash(self.writes, later.reads) or _clash(self.reads | self.writes, written)


@dataclass(frozen=True)
class Open:
    """What was touched since the last barrier: by the threads that run a block, and by groups among them.
    ``all.starts`` are copies under way. ``groups`` are open for a group itself, which has barriers of its
    own, ``seen`` for all others."""

    all: Touched = field(default_factory=Touched)
    groups: Mapping[Span, Touched] = field(default_factory=dict)
    seen: Mapping[Span, Touched] = field(default_factory=dict)

    def __or__(self, other: Open) -> Open:
        groups, seen = _joined(self.groups, other.groups), _joined(self.seen, other.seen)
        return Open(self.all | other.all, groups, seen)

    def of(self, span: Span) -> Touched:
        """What a group touched."""
        return self.groups.get(span, Touched())

    def behind(self, trip: Var, step: int | None) -> Open:
        """As `Use.behind`."""
        groups, seen = (
            {span: found.behind(trip, step) for span, found in each.items()}
            for each in (self.groups, self.seen)
        )
        return Open(self.all.behind(trip, step), groups, seen)

    def count_versions(self, trip: Var) -> int:
        """How many uses are of versions that trips of a loop take in turns."""
        parts = (self.all, *self.groups.values(), *self.seen.values())
        uses = (use for part in parts for use in (*part.reads, *part.writes, *part.starts))
        return sum(use.turn is not None and use.turn.trip.same_as(trip) for use in uses)

    def conflicts(self, later: Touched) -> bool:
        """Whether ``later``, by all threads, must wait."""
        return self.all.conflicts(later) or any(found.conflicts(later) for found in self.seen.values())


def _joined(first: Mapping[Span, Touched], other: Mapping[Span, Touched]) -> dict[Span, Touched]:
    spans = dict.fromkeys((*first, *other))
    return {span: first.get(span, Touched()) | other.get(span, Touched()) for span in spans}


def touched(stmt: Stmt, owners: Owners) -> Touched:
    """What a statement itself touches, without the blocks inside (but with a ThreadLoop's)."""
    if isinstance(stmt, ThreadLoop):
        return _loop_touches(stmt, owners)
    if isinstance(stmt, AsyncGather):
        items = accesses(stmt.body)
        reads = _shared(item.buffer for item in items if not item.is_write)
        return Touched(reads, starts=_shared(item.buffer for item in items if item.is_write))
    found = list(loads_of(stmt))
    reads = _one_by_one([Access(load.source, tuple(load.indices), False) for load in found], owners)
    own = frozenset(map(Use, scratch(stmt)))
    if isinstance(stmt, (Store, Atomic, JoinThreads)):
        return Touched(reads | own, own | _one_by_one([Access(stmt.buffer, stmt.indices, True)], owners))
    if isinstance(stmt, (AsyncCopy, BoxLoad)):
        return Touched(reads | _shared([stmt.src.buffer]), starts=_shared([stmt.dst.buffer]))
    if isinstance(stmt, PartStore):
        return _part_touches(stmt, owners)
    if isinstance(stmt, (TensorStore, TurnTile)):
        return Touched(reads | _shared([stmt.src.buffer]), _shared([stmt.dst.buffer]))
    if isinstance(stmt, ProductsWait):
        return Touched(_shared(stmt.tiles))
    if isinstance(stmt, TensorProduct):
        return Touched(reads | _shared([stmt.a.buffer, stmt.b.buffer]))
    if isinstance(stmt, BringOperand):
        return Touched(reads | _parts([stmt.a], owners))
    if isinstance(stmt, BringPlaces):
        return Touched(reads | _parts([stmt.e], owners))
    if isinstance(stmt, HeldProduct):
        return Touched(reads | _parts([stmt.b], owners))
    if isinstance(stmt, WarpGemm):
        return Touched(reads | _parts(_operands(stmt), owners))
    return Touched(reads | own, own)


def _operands(stmt: WarpGemm) -> list[Region]:
    """What a product reads, and what goes with it."""
    if isinstance(stmt, SparseWarpGemm):
        return [stmt.a, stmt.b, stmt.e]
    if isinstance(stmt, ScaledWarpGemm):
        return [stmt.a, stmt.b, stmt.sfa, stmt.sfb]
    return [stmt.a, stmt.b]


def _loop_touches(loop: ThreadLoop, owners: Owners) -> Touched:
    items = [item for item in accesses(loop.body) if _is_shared(item.buffer)]
    uses = [(item.is_write, owners.use(item, loop)) for item in items]
    reads, writes = (frozenset(use for is_write, use in uses if is_write == kind) for kind in (False, True))
    return Touched(reads, writes)


def _one_by_one(items: Iterable[Access], owners: Owners) -> frozenset[Use]:
    """What the threads touch one by one."""
    return frozenset(owners.use(item) for item in items if _is_shared(item.buffer))


def _part_touches(stmt: PartStore, owners: Owners) -> Touched:
    """What a warpgroup touches in its part, whose threads wait for each other, is as if one of them did."""
    loop = stmt.body[0]
    assert isinstance(loop, ThreadLoop)
    own = _loop_touches(loop, owners)
    (filled,) = own.writes
    return Touched(own.reads | {filled}, own.writes | {replace(filled, buffer=stmt.dst.buffer)})


def _clash(first: frozenset[Use], second: frozenset[Use]) -> bool:
    return any(use.clashes(other) for use in first for other in second)


def _shared(buffers: Iterable[Var]) -> frozenset[Use]:
    """Those of ``buffers`` that lie in memory other threads see."""
    return frozenset(Use(buffer) for buffer in buffers if _is_shared(buffer))


def _parts(regions: Iterable[Region], owners: Owners) -> frozenset[Use]:
    """Those of ``regions`` that lie in memory other threads see."""
    return frozenset(owners.part(region) for region in regions if _is_shared(region.buffer))


def _is_shared(buffer: Var) -> bool:
    return bool(buffer.scope() == "shared.dyn" or is_global(buffer))
