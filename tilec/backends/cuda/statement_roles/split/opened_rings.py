"""The rings of a launch with their memory and barriers: what producers and consumers have of each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.statement_roles.rings.plan import Plan
from tilec.backends.cuda.statement_roles.rings.ring import Ring, versions
from tilec.backends.cuda.statement_roles.split.loads import is_loop
from tilec.backends.cuda.statement_roles.split.raw_tiles import is_read_first
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.nodes import Block, Launch, Pipelined, Stmt
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier
from tilec.ir.nodes.threads import WARP
from tilec.ir.serial import serial

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.split.slices import Program

#: Elements of a stage that each lane of a warp loads beside what TMA brings.
_FEW = 8


class OpenedRings:
    """The rings that ``plan`` has for a launch: ``threads`` compute, ``loading`` threads load. ``tiles`` has
    the versions of each tile; ``full`` and ``empty`` the barriers of each ring, one for each stage."""

    def __init__(self, launch: Launch, program: Program, plan: Plan) -> None:
        self.launch, self.program, self.plan, self.rings = launch, program, plan, plan.rings
        self.threads = thread_count(launch)
        self.loading = _loading(self.rings, self.threads)
        self.tiles = {tile: made for ring in self.rings for tile, made in versions(ring).items()}
        self.full = {ring: _barriers(ring, "full") for ring in self.rings}
        self.empty = {ring: _barriers(ring, "empty") for ring in self.rings}

    def is_load(self, stmt: Stmt) -> bool:
        """Whether the producer carries a statement out."""
        return stmt in self.plan.loads

    def fills(self, stmt: Stmt, ring: Ring) -> bool:
        """Whether a statement is a load to a ring."""
        return self.is_load(stmt) and self.plan.loads[stmt].tile in ring.tiles

    def ring_of(self, load: Stmt) -> Ring:
        """The ring that a load fills."""
        return next(ring for ring in self.rings if self.fills(load, ring))

    def run_ahead(self) -> bool:
        """Whether all loads of loops have stages to run ahead in: one, where its tile is read first."""
        for stmt, load in self.plan.loads.items():
            trips = [each for each in self.program.around[stmt] if is_loop(each)]
            if trips and self.ring_of(stmt).stages == 1 and not is_read_first(load.tile, trips[-1]):
                return False
        return True

    def barriers(self, reading: int) -> Block:
        """The declarations of all barriers, with how many arrive at each; ``reading``: threads that take what
        a stage holds."""
        made: list[Stmt] = []
        for ring in self.rings:
            readers = reading // (WARPGROUP if ring.by_products else WARP)
            writers = self.loading if ring.by_threads else 1
            made.append(AllocBarrier(self.full[ring], (writers,) * ring.stages))
            made.append(AllocBarrier(self.empty[ring], (readers,) * ring.stages))
        return tuple(made)


def _loading(rings: Sequence[Ring], computing: int) -> int:
    """How many threads load. What TMA does not bring is a warpgroup's, but for few elements beside one
    warpgroup that computes: registers of three warps that hardly do anything leave a multiprocessor one block
    where it may hold two."""
    tiles = [tile for ring in rings if ring.by_threads for tile in ring.tiles]
    elements = sum(math.prod(static_extents(tile)) for tile in tiles)
    few = computing == WARPGROUP and elements <= _FEW * WARP
    return WARP if not tiles or few else WARPGROUP


def looped(stmt: Stmt) -> Stmt:
    """A pipelined loop as a loop: its loads have rings."""
    return serial(stmt, stmt.body) if isinstance(stmt, Pipelined) else stmt


def _barriers(ring: Ring, word: str) -> Var:
    return tirx.decl_buffer((ring.stages,), "uint64", name=f"{ring.name}_{word}", scope=SCOPE)
