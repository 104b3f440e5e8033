"""Pipelined loops run their loads ahead of the statements that use them.

    for k in pipelined(0, n, num_stages=3): copy(A[.., k * 64], As); gemm(As, ..)
    ->
    async_copy(A[.., 0 * 64], As[0]); async_copy(A[.., 1 * 64], As[1])          (where there are such trips)
    for k in serial(0, n):
        wait_group(1); async_copy(A[.., (k + 2) * 64], As[(k + 2) % 3]); gemm(As[k % 3], ..)

A tile then has a version for each stage. What is brought for trip ``k + 2`` lands in the version that trip
``k - 1`` has read, so that one barrier a trip is enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.pipelines.asked_hints import said
from tilec.backends.cuda.analysis.pipelines.loads_ahead import (
    ASYNC_BYTES,
    GuardedLoad,
    Load,
    async_elements,
    load_of,
)
from tilec.backends.cuda.analysis.pipelines.rewrite import (
    IN_TURN,
    PipelineRewrite,
    written_source,
)
from tilec.backends.cuda.analysis.pipelines.stages_that_fit import fewer_stages, stages_that_fit
from tilec.backends.cuda.analysis.pipelines.versions import with_version
from tilec.backends.cuda.nodes import CommitGroup, WaitGroup
from tilec.ir.exprs import conjuncts, dtype_of, inlined, int_value, same
from tilec.ir.layout_algebra import chunk, stacked
from tilec.ir.nodes import Alloc, Block, If, Kernel, Launch, Pipelined, Stmt, walk
from tilec.ir.roads import Loss
from tilec.ir.serial import serial
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import road_of, with_notes, with_roads
from tilec.lowering.analysis.uses import touches
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.layout import Layout
    from tilec.targets import Target

_NARROW = Loss(
    "async_copy",
    "cp.async moves 4, 8 or 16 aligned bytes, and its rows are not known to be multiples of that",
    'pin the extent of its rows, or give the dimension a guard such as "%8"',
)
_NO_ROOM = Loss(
    "async_copy", "shared memory holds no two stages of the loop", "choose smaller tiles, or a shorter K tile"
)


class PlanPipeline(Pass):
    """In: Pipelined loops. Out: serial loops; where a loop asks for two stages or more, its loads (copies and
    gathers that fill whole shared tiles from global buffers that nothing in the loop writes) are AsyncCopy
    and AsyncGather statements that run ``num_stages - 1`` trips ahead into as many versions of their tiles
    as there are stages. A load that cannot be asynchronous stays where it is."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its pipelines spelled out."""
        room = target.gpu.shared_bytes if target.gpu is not None else 0
        return rewrite_launches(kernel, lambda launch: Planner(kernel, launch, target, room).run())


class Planner(PipelineRewrite):
    """Rewrites the loops of one launch, whose blocks have ``room`` bytes of shared memory."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target, room: int) -> None:
        super().__init__(kernel, launch)
        self.target, self.room, self.notes = target, room, list[str]()

    def run(self) -> Launch:
        """The rewritten launch; tiles of several versions are allocated anew."""
        self._versions: dict[Var, Var] = {}
        body = _widened(self.block(self.launch.body), self._versions)
        return with_notes(with_roads(replace(self.launch, body=body), self.roads), self.notes)

    def ahead(self, loop: Pipelined) -> list[Stmt]:
        """The loop with its loads asynchronous, behind the first of these."""
        found = self._loads(loop)
        if not found:
            return []
        loop = self._fitting(loop, found)
        if loop.num_stages < 2:
            self.roads += [road_of(load.stmt, "waits", IN_TURN, _NO_ROOM) for load, _ in found]
            return []
        trips = "1 trip" if loop.num_stages == 2 else f"{loop.num_stages - 1} trips"
        for load, width in found:
            size = width * element_bytes(str(load.tile.dtype))
            how = f"cp.async of {size} bytes, {trips} ahead"
            self.roads += [
                road_of(load.stmt, "cp.async", how),
                *said(load.stmt, load.hints, "cp.async", width),
            ]
        return self._pipeline(loop, found)

    def _fitting(self, loop: Pipelined, found: list[tuple[Load, int]]) -> Pipelined:
        """The loop with as many stages as a block has room for."""
        tiles = [load.tile for load, _ in found]
        stages = stages_that_fit(loop, tiles, self.launch, self.target, self.room)
        self.notes += fewer_stages(loop, stages, self.room)
        return replace(loop, num_stages=stages)

    def started(self, copy: Stmt) -> Stmt:
        """What carries an asynchronous copy out."""
        return copy

    def _loads(self, loop: Pipelined) -> list[tuple[Load, int]]:
        """The statements that may run ahead, with their widths."""
        mutable = self.mutable(loop)
        found = []
        for position, stmt in enumerate(loop.body):
            load = load_of(stmt)
            if load is None:
                continue
            hints = load.hints
            if hints.prefer_instruction == "sync":
                self.roads.append(road_of(stmt, "waits", IN_TURN))
                continue
            loss = self._obstacle(load, position, loop, mutable)
            values, asked = values_of(loop.body), self._asked(load.tile)
            width = 0 if loss else async_elements(load, values, self.facts, asked)
            if width:
                found.append((load, width))
                continue
            self.roads.append(
                road_of(stmt, "waits", IN_TURN, loss or _converting(load) or self._narrow(load))
            )
        return found

    def _obstacle(self, load: Load, position: int, loop: Pipelined, mutable: set[Var]) -> Loss | None:
        """Why a load must stay where it is; None where it need not."""
        tile, name = load.tile, load.tile.name
        users = [stmt for stmt in walk(loop.body) if tile in set(buffers(stmt))]
        elsewhere = [stmt for stmt in walk(self.launch.body) if tile in set(buffers(stmt))]
        inside = len(users) == len([stmt for stmt in elsewhere if not isinstance(stmt, Alloc)])
        conds = conjuncts(load.cond) if isinstance(load, GuardedLoad) else ()
        under = all(_is_under(stmt, tile, conds, {}) for stmt in loop.body)
        obstacles = (
            (
                tile in self._versions,
                f"a loop around has versions of {name} already",
                f"give one of the two loops num_stages=0, or {name} a tile of its own in each",
            ),
            (
                any(isinstance(stmt, Alloc) and stmt.buffer.same_as(tile) for stmt in walk(loop.body)),
                f"{name} is allocated inside of the loop",
                "allocate it before the loop",
            ),
            (
                [stmt for stmt in users if tile in written(stmt)] != [load.writer],
                f"other statements write {name}, too",
                "load into a tile of its own",
            ),
            (
                any(tile in set(buffers(stmt)) for stmt in walk(loop.body[:position])),
                f"{name} is read before it is loaded",
                "load at the start of the trip",
            ),
            (not inside, f"{name} is used outside of the loop", "use another tile there"),
            (not under, f"{name} is used where it may not be loaded", "use it under the same condition"),
        )
        held = next((Loss("async_copy", why, remedy) for holds, why, remedy in obstacles if holds), None)
        return written_source(load, mutable) or held or self.unknown_place(load, loop, mutable)

    def _asked(self, tile: Var) -> Layout | None:
        """The layout that the author asks for."""
        allocs = (stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc))
        asked = next((alloc.asked for alloc in allocs if alloc.buffer.same_as(tile)), None)
        return None if asked is None else asked.layout

    def _narrow(self, load: Load) -> Loss:
        """Why cp.async cannot write a tile, or not from its source."""
        layout, size = self._asked(load.tile), element_bytes(str(load.tile.dtype))
        if layout is None or chunk(layout) * size in ASYNC_BYTES:
            return _NARROW
        kept = f"T.annotate_layout keeps {chunk(layout) * size} bytes of a row of {load.tile.name} together"
        return Loss("async_copy", f"{kept}, cp.async moves 4, 8 or 16", "keep 16 of them together")

    def _pipeline(self, loop: Pipelined, found: list[tuple[Load, int]]) -> list[Stmt]:
        stages, dtype = loop.num_stages, dtype_of(loop.var)
        count = tirx.const(stages, dtype)
        values = values_of(loop.body)
        for one, _ in found:
            self._versions[one.tile] = _versioned(one.tile, stages)
        tiles = {one.tile: self._versions[one.tile] for one, _ in found}

        def load(trip: Expr) -> Block:
            place = {loop.var: trip}
            version = tirx.truncmod(trip - loop.start, count)
            copies = (one.asynchronous(width, values, place, self.facts) for one, width in found)
            ahead = tuple(map(self.started, copies))
            return (If(trip < loop.stop, with_version(ahead, tiles, version)), CommitGroup())

        first = [stmt for step in range(stages - 1) for stmt in load(loop.start + tirx.const(step, dtype))]
        version = tirx.truncmod(loop.var - loop.start, count)
        kept = tuple(stmt for stmt in loop.body if not any(stmt is one.stmt for one, _ in found))
        body = with_version(self.block(kept), tiles, version)
        ahead = load(loop.var + tirx.const(stages - 1, dtype))
        trips = (WaitGroup(stages - 2), *ahead, *body)
        return [*first, serial(loop, trips)]


def _is_under(stmt: Stmt, tile: Var, conds: Sequence[Expr], values: Mapping[Var, Expr]) -> bool:
    """Whether a statement names a tile only where all of ``conds`` hold; ``values`` are those of names."""
    if not conds or not touches(stmt, tile):
        return True
    if not isinstance(stmt, If) or stmt.orelse:
        return False
    known = conjuncts(inlined(stmt.cond, values))
    left = [cond for cond in conds if not any(same(cond, part) for part in known)]
    values = {**values, **values_of(stmt.then)}
    return all(_is_under(inner, tile, left, values) for inner in stmt.then)


def _converting(load: Load) -> Loss | None:
    """That a load changes the type of elements, which cp.async cannot."""
    source, tile = str(load.source.dtype), str(load.tile.dtype)
    if source == tile:
        return None
    remedy = f"load {source} as it is, and convert the tile"
    return Loss("async_copy", f"cp.async does not convert {source} to {tile}", remedy)


def _with_versions(stmt: Alloc, versions: Var) -> Alloc:
    """The allocation of all versions of a tile, each in the order that its author asks for."""
    asked = stmt.asked
    if asked is not None:
        asked = replace(asked, layout=stacked(asked.layout, int_value(versions.shape[0]) or 1))
    return replace(stmt, buffer=versions, asked=asked)


def _versioned(tile: Var, stages: int) -> Var:
    return tirx.decl_buffer((stages, *tile.shape), str(tile.dtype), name=str(tile.name), scope=tile.scope())


def _widened(block: Block, versions: Mapping[Var, Var]) -> Block:
    """``block`` with the allocations of tiles replaced by those of their versions."""

    def rewrite(inner: Block) -> list[Stmt]:
        return [
            _with_versions(stmt, versions[stmt.buffer])
            if isinstance(stmt, Alloc) and stmt.buffer in versions
            else stmt
            for stmt in inner
        ]

    return rewrite_blocks(block, rewrite)
