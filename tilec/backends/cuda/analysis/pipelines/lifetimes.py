"""When shared tiles are in use: the statements between a tile's first and last one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tilec.backends.cuda.nodes import AsyncCopy, AsyncGather, CompleteBytes, RemoteStore, ThreadLoop
from tilec.ir.exprs import reads
from tilec.ir.nodes import LOOPS, Alloc, Block, Stmt, Store, children, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import buffers, expressions, scratch
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.emission.loops import is_left_early

if TYPE_CHECKING:
    from tvm.ir import Var

#: One statement of all threads each: threads may be anywhere inside at a time.
_TOGETHER = (ThreadLoop, AsyncGather)
#: What writes tiles at its own pace.
_UNDER_WAY = (AsyncCopy, AsyncGather, CompleteBytes)
#: The threads of a group: the first one and how many.
Span = tuple[int, int]


@dataclass(frozen=True)
class Lifetime:
    """Positions of statements in program order, both included, and the groups of threads that stand there
    (none: all threads)."""

    first: int
    last: int
    spans: frozenset[Span] = frozenset()

    def meets(self, other: Lifetime) -> bool:
        """Whether both may be in use at a time. Groups run beside each other."""
        apart = len(self.spans | other.spans) > 1 and bool(self.spans) and bool(other.spans)
        return apart or (self.first <= other.last and other.first <= self.last)

    def __or__(self, other: Lifetime) -> Lifetime:
        spans = self.spans | other.spans
        return Lifetime(min(self.first, other.first), max(self.last, other.last), spans)


ALWAYS = Lifetime(0, 1 << 62)


def lifetimes(body: Block, *, brief: bool = False) -> dict[Var, Lifetime]:
    """The lifetime of every tile that is allocated in ``body`` and used.

    What is allocated outside of a loop and used in it may carry values from trip to trip: it lives as long as
    the loop runs. Asynchronous copies are complete when the loop that waits for them ends. ``brief``: what a
    statement needs for itself alone lives as long as that statement, in a loop too, and what each trip of a
    loop writes anew before it reads it lives from there to its last use in the trip. Tiles of groups share
    bytes with none but those of the same group, and not where copies under way fill them; tiles that other
    blocks of a cluster write share none, as these may be ahead of what a barrier of this block orders."""
    walker = _Walker(brief)
    walker.block(body, ())
    return walker.found()


class _Use(NamedTuple):
    """A statement that uses a tile, the loops around, outermost first, the group that runs it, and whether it
    writes all of the tile in every trip of the innermost loop, without reading it."""

    position: int
    loops: tuple[int, ...]
    span: Span | None
    overwrites: bool


@dataclass
class _Walker:
    """Numbers statements. ``straight`` is whether every trip of the innermost loop comes to a statement."""

    brief: bool
    position: int = 0
    span: Span | None = None
    spans: dict[int, Lifetime] = field(default_factory=dict)
    homes: dict[Var, tuple[int, ...]] = field(default_factory=dict)
    uses: dict[Var, list[_Use]] = field(default_factory=dict)
    under_way: set[Var] = field(default_factory=set)
    of_others: set[Var] = field(default_factory=set)

    def block(self, block: Block, loops: tuple[int, ...], straight: bool = True) -> None:
        """Visits the statements of a block."""
        for stmt in block:
            self._stmt(stmt, loops, straight)

    def _stmt(self, stmt: Stmt, loops: tuple[int, ...], straight: bool) -> None:
        self.position += 1
        first = self.position
        if isinstance(stmt, Alloc):
            self.homes[stmt.buffer] = loops
            return
        self._note(stmt, first, loops, straight)
        if isinstance(stmt, _TOGETHER):
            return
        inner = (*loops, first) if isinstance(stmt, LOOPS) else loops
        outer, self.span = self.span, (stmt.first, stmt.count) if isinstance(stmt, Group) else self.span
        every = isinstance(stmt, LOOPS) or (isinstance(stmt, Group) and straight)
        for block in children(stmt):
            self.block(block, inner, every)
        self.span = outer
        if isinstance(stmt, LOOPS):
            self.spans[first] = Lifetime(first, self.position)

    def _note(self, stmt: Stmt, at: int, loops: tuple[int, ...], straight: bool) -> None:
        inside = tuple(walk((stmt,))) if isinstance(stmt, _TOGETHER) else (stmt,)
        named = dict.fromkeys(buffer for part in inside for buffer in buffers(part))
        for buffer in named:
            anew = straight and _overwrites(stmt, buffer)
            self.uses.setdefault(buffer, []).append(_Use(at, loops, self.span, anew))
        if isinstance(stmt, _UNDER_WAY):
            self.under_way |= set(named)
        self.of_others |= {part.buffer for part in inside if isinstance(part, RemoteStore)}
        for room in scratch(stmt):
            around = () if self.brief else loops
            self.uses.setdefault(room, []).append(_Use(at, around, self.span, False))

    def found(self) -> dict[Var, Lifetime]:
        """The lifetimes, once everything is visited."""
        return {
            buffer: self._life(buffer, uses) for buffer, uses in self.uses.items() if buffer in self.homes
        }

    def _life(self, buffer: Var, uses: list[_Use]) -> Lifetime:
        groups = frozenset(use.span for use in uses if use.span is not None)
        if buffer in self.of_others or (groups and buffer in self.under_way):
            return ALWAYS
        around = self._kept_in(buffer, uses)
        lives = [self._span_of(use, around) for use in uses]
        first, last = min(life.first for life in lives), max(life.last for life in lives)
        return Lifetime(first, last, groups)

    def _kept_in(self, buffer: Var, uses: list[_Use]) -> tuple[int, ...]:
        """The loops whose trips give a tile no value to each other."""
        home, first = self.homes[buffer], uses[0]
        if not (self.brief and first.overwrites) or buffer in self.under_way:
            return home
        inside = all(use.loops[: len(first.loops)] == first.loops for use in uses)
        return first.loops if inside else home

    def _span_of(self, use: _Use, inside: tuple[int, ...]) -> Lifetime:
        """The statement of a use, or the loop around it that is none of ``inside``."""
        around = next((loop for loop in use.loops if loop not in inside), None)
        return Lifetime(use.position, use.position) if around is None else self.spans[around]


def _overwrites(stmt: Stmt, tile: Var) -> bool:
    """Whether a loop of all threads gives every element of a tile a value, and reads none."""
    if not isinstance(stmt, ThreadLoop) or is_left_early(stmt.body):
        return False
    read = any(reads(expr, {tile}) for part in walk(stmt.body) for expr in expressions(part))
    stores = (part for part in stmt.body if isinstance(part, Store) and part.buffer.same_as(tile))
    return not read and any(stores_each(store, stmt) for store in stores)
