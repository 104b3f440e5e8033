"""Pipelined loops hold the tiles of the next trip in registers where no copy runs beside what threads do.

    for k in pipelined(0, n): As = A[k]; gemm(As, ..)
    ->
    held = A[0]
    for k in serial(0, n): As = held; held = A[k + 1]; gemm(As, ..)

It stands in for cp.async on AMD's and Apple's GPUs: reads of ``A[k + 1]`` are under way beside the product.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.pipelines.loads_ahead import Load, load_of
from tilec.backends.cuda.analysis.pipelines.rewrite import (
    IN_TURN,
    PipelineRewrite,
    written_source,
)
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Break,
    Continue,
    If,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.roads import HELD, Loss
from tilec.ir.serial import serial
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import road_of, with_notes, with_roads
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Of sixteen registers of a thread, so many at most for what is held ahead, and for that and fragments: the
#: rest is for operands, addresses and places. Kernels that ship spill no more on gfx942 and gfx1100 with
#: these shares than without loads ahead; with half of the registers for both, some did.
_AHEAD, _BOTH, _OF = 4, 7, 16
_WORD = 4


@dataclass(frozen=True)
class HoldAhead(Pass):
    """In: Pipelined loops. Out: serial loops; where a loop asks for two stages or more, each of its loads
    (copies and gathers that fill whole shared tiles from global buffers that nothing in the loop writes)
    brings the tile of the next trip to a fragment, behind the copy of this trip's from there to the tile.
    ``registers`` are those that a thread of a block of so many threads may have on a target; a load for
    whose fragment they have no room stays where it is."""

    registers: Callable[[Target, int], int]

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its pipelines spelled out."""

        def held(launch: Launch) -> Launch:
            return _Holder(kernel, launch, self.registers(target, thread_count(launch))).run()

        return rewrite_launches(kernel, held)


class _Holder(PipelineRewrite):
    """Rewrites the loops of one launch."""

    leaves = ((Break, "break"), (Continue, "continue"))

    def __init__(self, kernel: Kernel, launch: Launch, registers: int) -> None:
        super().__init__(kernel, launch)
        self.registers, self.threads, self.words = registers, thread_count(launch), 0
        self.notes: list[str] = []

    def run(self) -> Launch:
        """The rewritten launch."""
        body = self.block(self.launch.body)
        return with_notes(with_roads(replace(self.launch, body=body), self.roads), self.notes)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """The threads of a group are those that hold what it loads."""
        before = self.threads
        self.threads = stmt.count if isinstance(stmt, Group) else before
        made = super().stmt(stmt)
        self.threads = before
        return made

    def ahead(self, loop: Pipelined) -> list[Stmt]:
        """Allocations, the first loads, and the loop."""
        outside = self.words
        found = self._loads(loop)
        held: dict[Stmt, tuple[Load, Var]] = {load.stmt: (load, _fragment(load)) for load in found}
        values, one = values_of(loop.body), tirx.const(1, dtype_of(loop.var))

        def load_at(trip: Expr, stmts: Sequence[Stmt]) -> If:
            pairs = [held[stmt] for stmt in stmts]
            loads = [load.into(tile, values, {loop.var: trip}, self.facts) for load, tile in pairs]
            return If(trip < loop.stop, tuple(loads))

        body: list[Stmt] = []
        for run in _runs(loop.body, held):
            body += [held[stmt][0].out_of(held[stmt][1]) if stmt in held else stmt for stmt in run]
            loads = [stmt for stmt in run if stmt in held]
            body += [load_at(loop.var + one, loads)] if loads else []
        tiles = [Alloc(tile, loc=stmt.loc) for stmt, (_, tile) in held.items()]
        made = [*tiles, load_at(loop.start, list(held)), serial(loop, self.block(tuple(body)))]
        self.words = outside
        return made if held else []

    def _loads(self, loop: Pipelined) -> list[Load]:
        """The loads that run ahead."""
        mutable, found = self.mutable(loop), []
        for load in (load for stmt in loop.body if (load := load_of(stmt)) is not None):
            if load.hints.prefer_instruction == "sync":
                self.roads.append(road_of(load.stmt, "waits", IN_TURN))
                continue
            lost = written_source(load, mutable) or self.unknown_place(load, loop, mutable)
            lost = lost or _converting(load) or self._room(load)
            if lost is not None:
                self.roads.append(road_of(load.stmt, "waits", IN_TURN, lost))
                continue
            found.append(load)
            self.words += self._words(load)
            words = self._words(load)
            how = f"held in {words} register{'s' * (words > 1)} of a thread, 1 trip ahead"
            self.roads.append(road_of(load.stmt, HELD, how))
        if found and loop.num_stages > 2:
            self.notes.append(
                f"num_stages = {loop.num_stages} asks for {loop.num_stages - 1} trips ahead: registers hold 1"
            )
        return found

    def _words(self, load: Load) -> int:
        return -(-tile_bytes(Alloc(_fragment(load))) // (_WORD * self.threads))

    def _room(self, load: Load) -> Loss | None:
        """Why registers do not hold what a load brings."""
        words, taken = self._words(load), self.words + self._fragments()
        room = min(self.registers * _AHEAD // _OF - self.words, self.registers * _BOTH // _OF - taken)
        if words <= room:
            return None
        why = f"a thread would hold {load.tile.name} in {words} registers, {max(room, 0)} are left for that"
        return Loss("async_copy", why, "use smaller tiles or more threads")

    def _fragments(self) -> int:
        """Registers of a thread that the author's fragments take, and its share of 8-bit floats in shared
        memory, which become float32 in registers before a product reads them."""
        allocs = [stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)]
        tiles = [tile_bytes(alloc) for alloc in allocs if alloc.buffer.scope() == "local.fragment"]
        tiles += [_WORD * tile_bytes(alloc) for alloc in allocs if _is_small(alloc.buffer)]
        return sum(-(-size // (_WORD * self.threads)) for size in tiles)


def _converting(load: Load) -> Loss | None:
    """That a load changes the type of elements: compilers do so as soon as they have one, and wait for it."""
    source, tile = str(load.source.dtype), str(load.tile.dtype)
    if source == tile:
        return None
    why = f"what is loaded as {source} is made {tile} at once, for which it has to be there"
    return Loss("async_copy", why, f"load {source} as it is, and convert the tile")


def _is_small(tile: Var) -> bool:
    return bool(tile.scope() == "shared.dyn" and str(tile.dtype).startswith("float8"))


def _fragment(load: Load) -> Var:
    shape, name = static_extents(load.tile), f"{load.tile.name}_ahead"
    return tirx.decl_buffer(shape, str(load.source.dtype), name, scope="local.fragment")


def _runs(body: Block, held: Container[Stmt]) -> list[list[Stmt]]:
    """The statements of a body, loads that follow each other together: those of the next trip start when all
    of this one's have left their registers."""
    runs: list[list[Stmt]] = []
    for stmt in body:
        goes_on = runs and (stmt in held or isinstance(stmt, Bind)) and runs[-1][0] in held
        if goes_on:
            runs[-1].append(stmt)
        else:
            runs.append([stmt])
    return runs
