"""Pipelined loops run their loads ahead of the statements that use them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Break,
    For,
    If,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    walk,
)
from tilec.lowering.cuda.loads_ahead import Load, load_of
from tilec.lowering.cuda.nodes import CommitGroup, WaitGroup
from tilec.lowering.cuda.versions import with_version
from tilec.lowering.exprs import dtype_of, inlined, loads, uses
from tilec.lowering.passes import rewrite_blocks, rewrite_launches
from tilec.lowering.scopes import ScopedRewrite
from tilec.lowering.storage import element_bytes
from tilec.lowering.uses import buffers, with_overlapping, written, written_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.targets import Target

_NARROW = "cp.async moves 4, 8 or 16 aligned bytes, and its rows are not known to be multiples of that"
#: Bytes that one cp.async moves.
_ASYNC_BYTES = (4, 8, 16)


@dataclass(frozen=True)
class PlanPipeline:
    """In: Pipelined loops. Out: serial loops; where a loop asks for two stages or more, its loads (copies and
    gathers that fill whole shared tiles from global buffers that nothing in the loop writes) are AsyncCopy
    and AsyncGather statements that run ``num_stages - 1`` trips ahead into as many versions of their tiles
    as there are stages. A load that cannot be asynchronous stays where it is."""

    name: str = "plan_pipeline"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its pipelines spelled out."""
        return rewrite_launches(kernel, lambda launch: _Planner(kernel, launch).run())


class _Planner(ScopedRewrite):
    """Rewrites the loops of one launch."""

    def run(self) -> Launch:
        """The rewritten launch; tiles of several versions are allocated anew."""
        self._versions: dict[Var, Var] = {}
        self._notes: list[str] = []
        body = _widened(self.block(self.launch.body), self._versions)
        return replace(
            self.launch, body=body, hints=(*self.launch.hints, *(("note", n) for n in self._notes))
        )

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Pipelined loops become serial ones."""
        if not isinstance(stmt, Pipelined):
            return super().stmt(stmt)
        self._learn(stmt)
        found = self._loads(stmt) if self._asks_for_stages(stmt) else []
        if not found:
            one = tirx.const(1, dtype_of(stmt.var))
            return [For("serial", stmt.var, stmt.start, stmt.stop, one, self.block(stmt.body), loc=stmt.loc)]
        return self._pipeline(stmt, found)

    def _asks_for_stages(self, loop: Pipelined) -> bool:
        """Whether loads may run ahead at all."""
        if loop.num_stages < 2:
            return False
        if not any(isinstance(inner, Break) for inner in walk(loop.body)):
            return True
        self._notes.append("no load of a pipelined loop runs ahead: the loop may end early, by break")
        return False

    def _loads(self, loop: Pipelined) -> list[tuple[Load, int]]:
        """The statements that may run ahead, with their widths."""
        mutable = with_overlapping(written_in(loop.body), self.launch)
        found = []
        for position, stmt in enumerate(loop.body):
            load = load_of(stmt)
            if load is None:
                continue
            obstacle = self._obstacle(load, position, loop, mutable)
            width = 0 if obstacle else self._width(load, loop)
            if width:
                found.append((load, width))
                continue
            obstacle = (
                obstacle or "cp.async moves 4, 8 or 16 aligned bytes, and its rows are no multiples of that"
            )
            self._notes.append(f"{load.source.name} is not loaded ahead: {obstacle}")
        return found

    def _obstacle(self, load: Load, position: int, loop: Pipelined, mutable: set[Var]) -> str:
        """Why a load must stay where it is; "" where it need not."""
        tile, name = load.tile, load.tile.name
        users = [stmt for stmt in walk(loop.body) if tile in set(buffers(stmt))]
        elsewhere = [stmt for stmt in walk(self.launch.body) if tile in set(buffers(stmt))]
        inside = len(users) == len([stmt for stmt in elsewhere if not isinstance(stmt, Alloc)])
        obstacles = (
            (load.source in mutable, "the loop writes what it reads"),
            (tile in self._versions, f"a loop around has versions of {name} already"),
            (
                any(isinstance(stmt, Alloc) and stmt.buffer.same_as(tile) for stmt in walk(loop.body)),
                f"{name} is allocated inside of the loop",
            ),
            (
                [stmt for stmt in users if tile in written(stmt)] != [load.writer],
                f"other statements write {name}, too",
            ),
            (
                any(tile in set(buffers(stmt)) for stmt in walk(loop.body[:position])),
                f"{name} is read before it is loaded",
            ),
            (not inside, f"{name} is used outside of the loop"),
            (not self._is_free(load, loop, mutable), "its place is known in the trip itself alone"),
        )
        return next((why for holds, why in obstacles if holds), "")

    def _is_free(self, load: Load, loop: Pipelined, mutable: set[Var]) -> bool:
        """Whether the place of a load is known ahead: it depends on nothing that the loop changes."""
        values = _bindings(loop.body)
        places = [inlined(place, values) for place in load.places]
        inner = {var for stmt in walk(loop.body) for var in _defined(stmt)} - set(load.vars)
        return not any(read.source in mutable for place in places for read in loads(place)) and not any(
            uses(place, inner) for place in places
        )

    def _width(self, load: Load, loop: Pipelined) -> int:
        """Elements that one cp.async of a load moves; 0 where it cannot be used."""
        width = load.width(_bindings(loop.body), self.facts)
        return width if width * element_bytes(str(load.tile.dtype)) in _ASYNC_BYTES else 0

    def _pipeline(self, loop: Pipelined, found: list[tuple[Load, int]]) -> list[Stmt]:
        stages, dtype = loop.num_stages, dtype_of(loop.var)
        count = tirx.const(stages, dtype)
        values = _bindings(loop.body)
        for one, _ in found:
            self._versions[one.tile] = _versioned(one.tile, stages)

        def load(trip: Expr) -> Block:
            place = {loop.var: trip}
            version = tirx.truncmod(trip - loop.start, count)
            ahead = tuple(
                one.ahead(width, self._versions[one.tile], version, values, place, self.facts)
                for one, width in found
            )
            return (If(trip < loop.stop, ahead), CommitGroup())

        first = [stmt for step in range(stages - 1) for stmt in load(loop.start + tirx.const(step, dtype))]
        version = tirx.truncmod(loop.var - loop.start, count)
        kept = tuple(stmt for stmt in loop.body if not any(stmt is one.stmt for one, _ in found))
        tiles = {one.tile: self._versions[one.tile] for one, _ in found}
        body = with_version(self.block(kept), tiles, version)
        ahead = load(loop.var + tirx.const(stages - 1, dtype))
        trips = (WaitGroup(stages - 2), *ahead, *body)
        one = tirx.const(1, dtype)
        return [*first, For("serial", loop.var, loop.start, loop.stop, one, trips, loc=loop.loc)]


def _bindings(body: Block) -> dict[Var, Expr]:
    return {stmt.var: stmt.value for stmt in body if isinstance(stmt, Bind)}


def _defined(stmt: Stmt) -> tuple[Var, ...]:
    names = [getattr(stmt, "var", None), *getattr(stmt, "vars", ())]
    return tuple(name for name in names if name is not None and not isinstance(stmt, Bind))


def _versioned(tile: Var, stages: int) -> Var:
    return tirx.decl_buffer((stages, *tile.shape), str(tile.dtype), name=str(tile.name), scope=tile.scope())


def _widened(block: Block, versions: Mapping[Var, Var]) -> Block:
    """``block`` with the allocations of tiles replaced by those of their versions."""

    def rewrite(inner: Block) -> list[Stmt]:
        return [
            replace(stmt, buffer=versions[stmt.buffer])
            if isinstance(stmt, Alloc) and stmt.buffer in versions
            else stmt
            for stmt in inner
        ]

    return rewrite_blocks(block, rewrite)
