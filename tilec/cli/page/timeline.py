"""Pipelined loops as timelines: which trip each statement works on, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir import nodes as ir
from tilec.ir.roads import Road, trips_ahead
from tilec.ir.stmt import walk
from tilec.ir.traits import written as written_by

#: Steps behind the first trip's that a timeline shows.
_STEADY = 4


@dataclass(frozen=True)
class Row:
    """A statement: it is ``ahead`` trips in front of those that wait for it."""

    label: str
    instruction: str
    ahead: int

    def trip(self, step: int, first: int) -> int | None:
        """What it works on while trip ``step - first`` is the last one; None before its first."""
        trip = step - first + self.ahead
        return trip if trip >= 0 else None


@dataclass(frozen=True)
class Timeline:
    """A loop: its place, its stages, a row for each statement with a road."""

    place: str
    stages: int
    rows: tuple[Row, ...]

    @property
    def first(self) -> int:
        """Steps before trip 0 is complete."""
        return max((row.ahead for row in self.rows), default=0)

    @property
    def steps(self) -> int:
        """Steps that are shown."""
        return self.first + _STEADY


def timelines(written: ir.Kernel, lowered: ir.Kernel, roads: Sequence[Road]) -> Iterator[Timeline]:
    """Of each loop of the author's with two stages and more, by the roads that its statements took and the
    stages that lowering gave their tiles; of loops in which no statement runs ahead there is none."""
    depths = _depths(written, lowered)
    for loop in walk(written.body):
        if not isinstance(loop, ir.Pipelined) or loop.num_stages < 2 or loop.loc is None:
            continue
        rows = tuple(_rows(loop, roads, depths))
        if any(row.ahead for row in rows):
            stages = 1 + max(row.ahead for row in rows)
            yield Timeline(f"{loop.loc.file}:{loop.loc.line}", stages, rows)


def _depths(written: ir.Kernel, lowered: ir.Kernel) -> dict[str, int]:
    """Tiles that lowering gave a leading axis, by name: how many stages that is."""
    before, after = _shapes(written), _shapes(lowered)
    return {
        name: int(shape[0])
        for name, shape in after.items()
        if name in before and len(shape) == len(before[name]) + 1 and hasattr(shape[0], "value")
    }


def _shapes(kernel: ir.Kernel) -> dict[str, Sequence[Any]]:
    allocs = (stmt for stmt in walk(kernel.body) if isinstance(stmt, ir.Alloc))
    return {stmt.buffer.name: stmt.buffer.shape for stmt in allocs}


def _rows(loop: ir.Pipelined, roads: Sequence[Road], depths: Mapping[str, int]) -> Iterator[Row]:
    filled: dict[tuple[str, int], set[str]] = {}
    for stmt in walk(loop.body):
        if stmt.loc is not None:
            names = filled.setdefault((stmt.loc.file, stmt.loc.line), set())
            names.update(buffer.name for buffer in written_by(stmt))
    for road in roads:
        names = filled.get((road.file, road.line), set())
        if (road.file, road.line) in filled:
            stages = max((depths.get(name, loop.num_stages) for name in names), default=loop.num_stages)
            yield Row(road.statement, road.instruction, trips_ahead(road, stages))
