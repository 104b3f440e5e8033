"""The program of those who compute: a launch without its loads, with waits for what these bring.

copy(A[.., k * 64], As); gemm(As, ..)    ->    wait until As[s] is full; gemm(As[s], ..); give back As[s]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.versions import with_versions
from tilec.backends.cuda.nodes import GiveBack, WaitLanded
from tilec.backends.cuda.statement_roles.split.opened_rings import OpenedRings, looped
from tilec.backends.cuda.statement_roles.split.slices import stored
from tilec.backends.cuda.statement_roles.split.uses import uses_of
from tilec.ir.nodes import Alloc, Block, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.rings.plan import Plan
    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.places import Known, Place
    from tilec.backends.cuda.statement_roles.split.slices import Program


class Consumer:
    """Writes what is done with ``opened`` rings; ``places``: where those who compute stand in each."""

    def __init__(self, opened: OpenedRings, places: Mapping[Ring, Place]) -> None:
        self._opened, self._places = opened, places
        self._looked_up = _only_looked_up(opened.program, opened.plan)

    def body(self, block: Block) -> Block:
        """A block without its loads, with waits before the first uses of what they bring."""
        before: dict[int, list[Stmt]] = {}
        after: dict[int, list[Stmt]] = {}
        stmts = [with_children(stmt, [self.body(inner) for inner in children(stmt)]) for stmt in block]
        found = [(uses or [first], ring) for ring, first, uses in uses_of(block, self._opened.plan)]
        known: Known = {}
        for uses, ring in sorted(found, key=lambda each: each[0][0]):
            self._used(ring, stmts, uses, before, after, known)
        made: list[Stmt] = []
        for position, stmt in enumerate(stmts):
            made += before.get(position, ())
            if not self._is_left_out(block[position]):
                made.append(looped(stmt))
            made += after.get(position, ())
        return tuple(made)

    def _is_left_out(self, stmt: Stmt) -> bool:
        """Whether those who compute have no such statement."""
        of_ring = isinstance(stmt, Alloc) and stmt.buffer in self._opened.tiles
        return self._opened.is_load(stmt) or of_ring or stmt in self._looked_up

    def _used(
        self,
        ring: Ring,
        stmts: list[Stmt],
        uses: list[int],
        before: dict[int, list[Stmt]],
        after: dict[int, list[Stmt]],
        known: Known,
    ) -> None:
        """Waits for a stage and gives it back, around its ``uses`` among the statements of a block."""
        names, (stage, parity), behind = self._places[ring].taken(ring, known)
        wait = (WaitLanded if ring.is_fenced else WaitPhase)(self._opened.full[ring], stage, parity)
        before.setdefault(uses[0], []).extend([*names, wait, *behind])
        tiles = tuple(self._opened.tiles[tile] for tile in ring.tiles)
        after.setdefault(uses[-1], []).append(
            GiveBack(self._opened.empty[ring], stage, tiles, ring.by_products)
        )
        redirected = {tile: (self._opened.tiles[tile], stage) for tile in ring.tiles}
        for index in uses:
            (stmts[index],) = with_versions((stmts[index],), redirected)


def _only_looked_up(program: Program, plan: Plan) -> set[Stmt]:
    """The statements that bring what only the producer looks up: those who compute need none of them, unless
    they bring something else, too."""
    moved = {inner for load in plan.loads for inner in walk((load,))}
    givers = {
        table: {stmt for writer in program.writers.get(table, ()) for stmt in walk((writer,))}
        for table in plan.tables
    }

    def is_moved(table: Var) -> bool:
        users = {stmt for stmt in program.around if table in set(buffers(stmt))}
        return users <= givers[table] | moved | {program.definers[table]}

    alone = set(filter(is_moved, plan.tables))
    while mixed := {table for table in alone if set(stored(givers[table])) - alone}:
        alone -= mixed
    return {stmt for table in alone for stmt in (*givers[table], program.definers[table])}
