"""Splits the statements of a launch where its threads meet: barriers, exchanges, tile operations, hazards.

    each thread: a; sync_threads(); b    ->    for t in threads: a;  for t in threads: b

A CPU runs the threads of a block one after the other, in loops. Such a loop must end wherever a thread waits
for others; what a thread keeps from one loop to the next gets an element for each thread. The result is a
plan of regions, which `write_plan` makes tile IR of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from tilec.backends.cpu.threads.common_work import alone, common_work
from tilec.backends.cpu.threads.exchange import Exchange
from tilec.backends.cpu.threads.meetings import MEETINGS, Meetings
from tilec.backends.cpu.threads.own_results import through_tile
from tilec.backends.cpu.threads.plan import Nest, Once, Piece, Region
from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.exprs import all_of, conjuncts, inlined, loads, uses
from tilec.ir.nodes import Rest
from tilec.ir.nodes.threads import BLOCK_VOTES, PER_THREAD, Lane, Sync, ThreadReduce
from tilec.ir.places import place_of
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.analysis.thread_hazards import Hazards, loop_of_some
from tilec.lowering.analysis.uses import with_overlapping, written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.analysis.threads.uniform import Uniformity


#: Memory that the threads of a block share.
_SHARED = ("shared.dyn", "local.fragment")


@dataclass(frozen=True)
class Mask:
    """The threads that come to a place: ``guards`` hold in them. ``exact``: how the author wrote the
    conditions that part threads, those of threads that have ended left out."""

    guards: tuple[Expr, ...] = ()
    exact: tuple[Expr, ...] = ()


class Splitter:
    """Makes the plan of ``body``, the launch's own or what became of it; ``uniform`` says of either what
    differs between threads. ``values`` holds what names of exchanged values stand for."""

    def __init__(self, launch: ir.Launch, body: ir.Block, uniform: Uniformity) -> None:
        self._launch = launch
        self.grid = ThreadGrid.of(launch)
        self.uniform = uniform
        self.values: dict[Var, Expr] = {}
        self._hazards = Hazards(self.grid, body, uniform)
        self._named = [stmt.var for stmt in ir.walk(body) if isinstance(stmt, ir.Bind)]
        self.pure = self._hazards.values
        self._meetings = Meetings(body, self.uniform, self._hazards)
        self._common = common_work(body, self.is_split, self.uniform) if self.grid.count > 1 else set()

    # The plan

    def plan(self, body: ir.Block, mask: Mask = Mask()) -> list[Piece]:
        """The pieces of a block."""
        return _Run(self, mask).pieces(body)

    def reader(self, mask: Mask) -> int | None:
        """The first thread that comes to a place; None where that is not known."""
        if len(mask.exact) != len(mask.guards):
            return None
        taken = self.grid.exactly(inlined(cond, self.pure) for cond in mask.exact)
        return None if taken is None or not taken.any() else int(np.flatnonzero(taken)[0])

    def is_split(self, stmt: ir.Stmt) -> bool:
        """Whether the block takes a statement apart or carries it out."""
        return stmt in self._meetings

    def is_common(self, stmt: ir.Stmt) -> bool:
        """Whether the block carries a statement out once, as all threads would do the same."""
        return stmt in self._common

    def is_hoistable(self, stmt: ir.Stmt, run: Sequence[ir.Stmt], mask: Mask) -> bool:
        """Whether the block can do a statement once, ahead of the statements of a run: a name that it reads
        is what a thread that comes here has kept."""
        if isinstance(stmt, ir.Alloc):
            return stmt.buffer.scope() in _SHARED
        if not isinstance(stmt, ir.Bind) or stmt.var in self.pure or self.uniform.varies(stmt.value):
            return False
        value = inlined(stmt.value, self.pure)
        sources = [load.source for load in loads(value)]
        if any(source.scope() in PER_THREAD for source in sources):
            return False
        changed = with_overlapping(written_in(tuple(run)), self._launch)
        if any(source in changed for source in sources):
            return False
        named = [item.var for item in run if isinstance(item, ir.Bind) and item.var not in self.pure]
        return not uses(value, named if self.reader(mask) is not None else self._named)

    def conflicts(self, run: list[ir.Stmt], stmt: ir.Stmt) -> bool:
        """Whether a statement has to wait for other threads' statements of a run."""
        return self._hazards.between(run, stmt)

    def parted(self, cond: Expr) -> tuple[list[Expr], list[Expr]]:
        """The parts of a condition that all threads agree on, and the others."""
        parts = conjuncts(cond)
        varying = [part for part in parts if self.uniform.varies(part)]
        return [part for part in parts if not self.uniform.varies(part)], varying

    def split(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement made here that the block has to take apart."""
        self._meetings.add(stmt)
        return stmt

    def check_meeting(self, stmt: ir.Stmt, mask: Mask) -> None:
        """Threads may meet under the mask.

        Raises:
            UnsupportedError: where it may keep some of them away.
        """
        if isinstance(stmt, Sync) and stmt.kind == "warp":
            return
        if isinstance(stmt, Lane) and stmt.kind not in BLOCK_VOTES:
            return
        if not mask.exact:
            return
        taken = self.grid.exactly(inlined(cond, self.pure) for cond in mask.exact)
        if isinstance(stmt, ir.COLLECTIVE) and taken is not None and _is_range(taken):
            return
        named = isinstance(stmt, Sync) and stmt.barrier is not None and taken is not None
        if named and int(taken.sum()) == stmt.count:  # type: ignore[union-attr,attr-defined]
            return
        raise UnsupportedError(
            f"{_word(stmt)} stands where only some threads of the block come",
            place=place_of(stmt),
            why="the condition around it depends on the index of a thread",
            remedy="move it out of the branch, or make the condition the same for all threads",
        )


class _Run:
    """The pieces of one block: ``stmts`` are those since threads last met."""

    def __init__(self, splitter: Splitter, mask: Mask) -> None:
        self.splitter = splitter
        self.mask = mask
        self.out: list[Piece] = []
        self.stmts: list[ir.Stmt] = []

    def pieces(self, body: ir.Block) -> list[Piece]:
        """The pieces of the block."""
        for stmt in body:
            self._add(stmt)
        self._flush()
        return self.out

    def _flush(self) -> None:
        if self.stmts:
            self.out.append(Region(self.stmts, self.mask.guards))
        self.stmts = []

    def _add(self, stmt: ir.Stmt) -> None:
        splitter = self.splitter
        if splitter.is_split(stmt):
            self._split(stmt)
        elif splitter.is_common(stmt):
            self._flush()
            self.out.append(
                Once(stmt if isinstance(stmt, ir.Alloc) else alone(stmt), splitter.reader(self.mask))
            )
        elif splitter.is_hoistable(stmt, self.stmts, self.mask):
            self.out.append(Once(stmt, splitter.reader(self.mask)))
        else:
            self._run(stmt)

    def _run(self, stmt: ir.Stmt) -> None:
        """Each thread does a statement, after what it has to wait for."""
        if self.splitter.conflicts(self.stmts, stmt):
            self._flush()
        self.stmts.append(stmt)

    def _split(self, stmt: ir.Stmt) -> None:
        splitter, mask = self.splitter, self.mask
        if isinstance(stmt, ir.If):
            return self._branch(stmt)
        if isinstance(stmt, ir.LOOPS):
            if splitter.uniform.parts(stmt):
                raise loop_of_some(stmt)
            return self._nest(stmt, [splitter.plan(stmt.body, mask)])
        if isinstance(stmt, MEETINGS):
            splitter.check_meeting(stmt, mask)
        if isinstance(stmt, (Lane, ThreadReduce)):
            return self._exchange(stmt)
        self._flush()
        made: list[ir.Stmt] = [stmt]
        after: list[ir.Stmt] = []
        if isinstance(stmt, ir.Reduce) and stmt.dst.buffer.scope() in PER_THREAD:
            made, after = through_tile(stmt)
        if not isinstance(stmt, Sync):
            self.out += [Once(each, splitter.reader(mask)) for each in made]
        self.stmts += after
        return None

    def _nest(self, stmt: ir.Stmt, blocks: list[list[Piece]]) -> None:
        self._flush()
        self.out.append(Nest(stmt, blocks, self.splitter.reader(self.mask)))

    def _exchange(self, stmt: Lane | ThreadReduce) -> None:
        exchange = Exchange(self.splitter.grid, bool(self.mask.guards), stmt.loc)
        made = exchange.lane(stmt) if isinstance(stmt, Lane) else exchange.reduce(stmt)
        for tile in made.tiles:
            self.out.append(Once(ir.Alloc(tile, loc=stmt.loc), None))
        if made.before:
            self.out.append(Region(made.before))
        for each in made.offers:
            self._run(each)
        self._flush()
        self.out += [Once(each, None) for each in made.meeting]
        self.splitter.values.update(made.values)
        self.stmts += made.after

    def _branch(self, stmt: ir.If) -> None:
        splitter = self.splitter
        uniform, varying = splitter.parted(stmt.cond)
        if not varying:
            return self._nest(stmt, [splitter.plan(block, self.mask) for block in ir.children(stmt)])
        if uniform and not stmt.orelse:
            rest = (splitter.split(replace(stmt, cond=all_of(varying))),)
            outer = ir.If(all_of(uniform), rest, loc=stmt.loc)
            return self._nest(outer, [splitter.plan(rest, self.mask), []])
        cond = self._held(stmt.cond, stmt)
        if isinstance(stmt, Rest):
            return self._rest(stmt, cond)
        self._flush()
        sides = [(stmt.then, cond, stmt.cond), (stmt.orelse, tirx.Not(cond), tirx.Not(stmt.cond))]
        for block, guard, exact in sides:
            inner = Mask((*self.mask.guards, guard), (*self.mask.exact, exact))
            self.out += splitter.plan(block, inner)
        return None

    def _rest(self, stmt: Rest, cond: Expr) -> None:
        """What threads that have not ended go on with; nothing where all of them have."""
        left = Lane("block_or", tirx.Var("left", "int32"), (cond,), loc=stmt.loc)
        self._exchange(left)
        some = ir.If(tirx.NE(left.var, tirx.const(0, "int32")), (), loc=stmt.loc)
        mask = Mask((*self.mask.guards, cond), self.mask.exact)
        self._nest(some, [self.splitter.plan(stmt.then, mask), []])

    def _held(self, cond: Expr, stmt: ir.Stmt) -> Expr:
        """A condition that stays what it is here."""
        splitter, grid = self.splitter, self.splitter.grid
        now = inlined(cond, splitter.pure)
        if not any(True for _ in loads(now)):
            return now
        held = tirx.decl_buffer((grid.count,), "bool", "taken", scope="local.fragment")
        self.out.append(Once(ir.Alloc(held, loc=stmt.loc), None))
        self._run(ir.Store(held, (grid.number,), cond, loc=stmt.loc))
        return tirx.BufferLoad(held, [grid.number])


def _is_range(taken: np.ndarray) -> bool:
    """Whether the threads follow each other."""
    places = np.flatnonzero(taken)
    return len(places) > 0 and places[-1] - places[0] + 1 == len(places)


def _word(stmt: ir.Stmt) -> str:
    """What the author calls a statement."""
    if isinstance(stmt, Sync):
        return "T.sync_threads"
    if isinstance(stmt, ThreadReduce):
        return "T.tvm_thread_allreduce"
    if isinstance(stmt, Lane):
        return f"T.syncthreads_{stmt.kind.removeprefix('block_')}"
    return f"T.{type(stmt).__name__ if isinstance(stmt, ir.Parallel) else type(stmt).__name__.lower()}"
