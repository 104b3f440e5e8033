"""A thread's loop over rows goes around the loop over elements that it stands in.

for j in parallel(1024): s = 0; for p in range(8): s += P[p, j]; Y[j] = s
->
for j in parallel(1024): f[j] = 0
for p in range(8): for j in parallel(1024): f[j] += P[p, j]
for j in parallel(1024): Y[j] = f[j]

Neighbours of a trip are vectors then, and all elements of a thread are under way at once: each had a loop
of its own, one after the other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.vectors import HELD_BY_TWO, begins_anywhere, vector_width
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.analysis.trips.part_iterations import Parts
from tilec.backends.cuda.passes.sums.serialise_collisions import colliding
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import inlined, int_value, reads, uses
from tilec.ir.nodes import Alloc, For, If, Kernel, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import Access, accesses, names_one_element, values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import overlapping
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from tvm.ir import Expr, Var

    from tilec.targets import Target

_MEMORY = ("global", "shared.dyn")
#: Registers of a thread that its variables may take, and trips that may read down a column: what these need
#: of a row lies in one vector, which the cache keeps.
_REGISTERS, _FEW = 64, 8


class HoistTrips(Pass):
    """In: Parallel loops of constant extents. Out: where a loop inside of an iteration reads, in each trip,
    what neighbouring iterations read beside it, it stands around a Parallel; variables of the iteration are
    fragments."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with the loops of its iterations around these."""
        return rewrite_launches(kernel, lambda launch: _Hoist(kernel, launch).run())


class _Hoist(ScopedRewrite):
    """The loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self._overlapping = overlapping(launch)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop over elements, parted at the loops in it where that gains."""
        if type(stmt) is not Parallel or not _may_part(stmt, self._overlapping, thread_count(self.launch)):
            return super().stmt(stmt)
        for inner in walk((stmt,)):
            self._learn(inner)
        parts = Parts(stmt) if self._gains(stmt) else None
        return [stmt] if parts is None or not self._fits(stmt, parts) else parts.loops()

    def _fits(self, loop: Parallel, parts: Parts) -> bool:
        """Whether threads have several elements, and registers for what goes from part to part."""
        share = -(-math.prod(loop_extents(loop)) // thread_count(self.launch))
        is_bool = any(str(kept.dtype) == "bool" for kept in parts.kept.values())
        return share > 1 and share * len(parts.kept) <= _REGISTERS and not is_bool

    def _gains(self, loop: Parallel) -> bool:
        """Whether trips read vectors along the last axis, and none goes down a column for long."""
        values = values_of(walk(loop.body))
        found = False
        for trips in (stmt for stmt in walk(loop.body) if isinstance(stmt, For)):
            few = (int_value(trips.stop - trips.start) or _FEW + 1) <= _FEW
            for item in _reads(trips, values):
                if not few and _goes_down(item, trips.var, loop.vars[-1]):
                    return False
                found = found or self._is_moved(item, loop)
        return found

    def _is_moved(self, item: Access, loop: Parallel) -> bool:
        """Whether vectors move what neighbouring iterations read."""
        place = item.buffer, item.indices, loop.vars[-1], int(loop.extents[-1]), self.facts
        return vector_width(*place) > 1 or begins_anywhere(*place) >= HELD_BY_TWO


def _reads(trips: For, values: dict[Var, Expr]) -> Iterator[Access]:
    """What a loop reads of memory at places of the loop around it."""
    for item in accesses(trips.body):
        if not item.is_write and item.buffer.scope() in _MEMORY:
            yield Access(item.buffer, tuple(inlined(index, values) for index in item.indices), False)


def _goes_down(item: Access, trip: Var, var: Var) -> bool:
    """Whether trips go along a row, of which each value of ``var`` has one of its own."""
    *rows, last = item.indices
    return uses(last, (trip,)) and any(uses(row, (var,)) for row in rows)


def _may_part(loop: Parallel, overlapping: Set[Var], threads: int) -> bool:
    """Whether iterations keep to elements of their own, and go through the same trips."""
    stmts = list(walk(loop.body))
    if loop.hints.given or not is_scalar_code(loop.body):
        return False
    variables = {stmt.buffer for stmt in stmts if isinstance(stmt, Alloc)}
    written = {stmt.buffer for stmt in stmts if isinstance(stmt, Store)} - variables
    if not all(_is_variable(buffer) for buffer in variables) or written & overlapping:
        return False
    if not all(names_one_element(buffer, accesses(loop.body)) for buffer in written) or colliding(loop):
        return False
    updates = any(
        not item.is_write and item.buffer in written for item in accesses(loop.body) if _is_seen(item)
    )
    if updates and not _has_one_thread_each(loop, threads):
        return False  # threads with copies of an iteration would read in one loop what another one has stored
    return _share_trips(loop, variables | written, written)


def _share_trips(loop: Parallel, changed: Set[Var], written: Set[Var]) -> bool:
    """Whether the loops in iterations have the same trips for all, and store to variables and fragments."""
    values = values_of(walk(loop.body))
    found = [stmt for stmt in walk(loop.body) if isinstance(stmt, For)]
    for trips in found:
        header = [inlined(value, values) for value in (trips.start, trips.stop, trips.step)]
        if any(uses(value, loop.vars) or reads(value, changed) for value in header):
            return False
        stored = {stmt.buffer for stmt in walk(trips.body) if isinstance(stmt, Store)} & written
        if any(buffer.scope() != "local.fragment" for buffer in stored):
            return False
    branches = [stmt for stmt in walk(loop.body) if isinstance(stmt, If)]
    around = [
        each for each in branches if any(isinstance(stmt, For) for stmt in walk((*each.then, *each.orelse)))
    ]
    return bool(found) and not any(reads(each.cond, changed) for each in around)


def _has_one_thread_each(loop: Parallel, threads: int) -> bool:
    """Whether no two threads have an iteration: there are as many for each, and no fragment of the author's
    says who has which."""
    named = {item.buffer.scope() for item in accesses(loop.body)}
    return math.prod(loop_extents(loop)) % threads == 0 and "local.fragment" not in named


def _is_seen(item: Access) -> bool:
    return item.buffer.scope() in _MEMORY


def _is_variable(buffer: Var) -> bool:
    return buffer.scope() in PER_THREAD and [int_value(size) for size in buffer.shape] == [1]
