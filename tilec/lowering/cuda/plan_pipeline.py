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
    Copy,
    For,
    If,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    Store,
    walk,
)
from tilec.lowering.cpu.expand_copies import expand_copy
from tilec.lowering.cpu.scopes import ScopedRewrite
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cpu.uses import buffers, written, written_in
from tilec.lowering.cuda.nodes import AsyncCopy, CommitGroup, WaitGroup
from tilec.lowering.cuda.vectors import vector_width
from tilec.lowering.cuda.versions import with_version
from tilec.lowering.exprs import dtype_of, int_value, loads, substitute, uses
from tilec.lowering.passes import rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.lowering.facts import Facts
    from tilec.targets import Target

#: Bytes that one cp.async moves.
_ASYNC_BYTES = (4, 8, 16)


@dataclass(frozen=True)
class PlanPipeline:
    """In: Pipelined loops. Out: serial loops; where a loop asks for two stages or more, its loads (copies of
    whole shared tiles from global buffers that nothing in the loop writes) are AsyncCopy statements that run
    ``num_stages - 1`` trips ahead into as many versions of their tiles as there are stages. A load that
    cannot be asynchronous stays where it is."""

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
        runs_ahead = stmt.num_stages >= 2 and not any(isinstance(inner, Break) for inner in walk(stmt.body))
        found = self._loads(stmt) if runs_ahead else []
        if not found:
            one = tirx.const(1, dtype_of(stmt.var))
            return [For("serial", stmt.var, stmt.start, stmt.stop, one, self.block(stmt.body), loc=stmt.loc)]
        return self._pipeline(stmt, found)

    def _loads(self, loop: Pipelined) -> list[tuple[Copy, int]]:
        """The copies that may run ahead, with their widths."""
        mutable = written_in(loop.body)
        found = []
        for position, stmt in enumerate(loop.body):
            if isinstance(stmt, Copy) and self._is_load(stmt, position, loop, mutable):
                width = self._width(stmt, loop)
                found += [(stmt, width)] if width else []
                if not width:
                    self._note_slow(stmt)
        return found

    def _is_load(self, copy: Copy, position: int, loop: Pipelined, mutable: set[Var]) -> bool:
        tile = copy.dst.buffer
        if tile.scope() != "shared.dyn" or not copy.src.buffer.scope().startswith("global"):
            return False
        if copy.src.buffer in mutable or tile in self._versions or not _is_whole(copy.dst):
            return False
        users = [stmt for stmt in walk(loop.body) if tile in set(buffers(stmt))]
        local = any(isinstance(stmt, Alloc) and stmt.buffer.same_as(tile) for stmt in walk(loop.body))
        writers = [stmt for stmt in users if tile in written(stmt)]
        earlier = any(tile in set(buffers(stmt)) for stmt in walk(loop.body[:position]))
        elsewhere = [stmt for stmt in walk(self.launch.body) if tile in set(buffers(stmt))]
        inside = len(users) == len([stmt for stmt in elsewhere if not isinstance(stmt, Alloc)])
        return (
            not local
            and writers == [copy]
            and not earlier
            and inside
            and self._is_free(copy.src, loop, mutable)
        )

    def _is_free(self, region: Region, loop: Pipelined, mutable: set[Var]) -> bool:
        """Whether the place of a load is known ahead: it depends on nothing that the loop changes."""
        values = _bindings(loop.body)
        starts = [_inlined(start, values) for start in region.start]
        inner = {var for stmt in walk(loop.body) for var in _defined(stmt)}
        return not any(load.source in mutable for start in starts for load in loads(start)) and not any(
            uses(start, inner) for start in starts
        )

    def _width(self, copy: Copy, loop: Pipelined) -> int:
        """Elements that one cp.async of a copy moves; 0 where it cannot be used."""
        if str(copy.src.buffer.dtype) != str(copy.dst.buffer.dtype):
            return 0
        values = _bindings(loop.body)
        src = replace(copy.src, start=tuple(_inlined(start, values) for start in copy.src.start))
        width = async_width(replace(copy, src=src), self.facts)
        return width if width * element_bytes(str(copy.dst.buffer.dtype)) in _ASYNC_BYTES else 0

    def _note_slow(self, copy: Copy) -> None:
        self._notes.append(
            f"{copy.src.buffer.name} is not loaded ahead: cp.async moves 4, 8 or 16 aligned bytes, and "
            "its rows are not known to be multiples of that"
        )

    def _pipeline(self, loop: Pipelined, found: list[tuple[Copy, int]]) -> list[Stmt]:
        stages, dtype = loop.num_stages, dtype_of(loop.var)
        count = tirx.const(stages, dtype)
        values = _bindings(loop.body)
        for copy, _ in found:
            self._versions[copy.dst.buffer] = _versioned(copy.dst.buffer, stages)

        def load(trip: Expr) -> Block:
            place = {loop.var: trip}
            version = tirx.truncmod(trip - loop.start, count)
            copies = tuple(self._ahead(copy, width, values, place, version) for copy, width in found)
            return (If(trip < loop.stop, copies), CommitGroup())

        first = [stmt for step in range(stages - 1) for stmt in load(loop.start + tirx.const(step, dtype))]
        version = tirx.truncmod(loop.var - loop.start, count)
        kept = tuple(stmt for stmt in loop.body if not any(stmt is copy for copy, _ in found))
        body = with_version(self.block(kept), {copy.dst.buffer: self._versions[copy.dst.buffer]
                                               for copy, _ in found}, version)  # fmt: skip
        ahead = load(loop.var + tirx.const(stages - 1, dtype))
        trips = (WaitGroup(stages - 2), *ahead, *body)
        one = tirx.const(1, dtype)
        return [*first, For("serial", loop.var, loop.start, loop.stop, one, trips, loc=loop.loc)]

    def _ahead(
        self, copy: Copy, width: int, values: Mapping[Var, Expr], place: Mapping[Var, Expr], version: Expr
    ) -> AsyncCopy:
        start = tuple(substitute(_inlined(start, values), place) for start in copy.src.start)
        tile = self._versions[copy.dst.buffer]
        where = Region(tile, (version, *copy.dst.start), (1, *copy.dst.extent))
        return AsyncCopy(replace(copy.src, start=start), where, width, loc=copy.loc)


def async_width(copy: Copy, facts: Facts) -> int:
    """The vector width that both sides of a copy along its last axis allow."""
    loop = expand_copy(copy)
    if not isinstance(loop, Parallel):
        return 0
    (store,) = loop.body
    assert isinstance(store, Store)
    var, extent = loop.vars[-1], int_value(loop.extents[-1]) or 1
    limit = extent & -extent
    source = store.value
    width = vector_width(copy.dst.buffer, store.indices, var, limit, facts)
    return vector_width(copy.src.buffer, tuple(source.indices), var, width, facts)


def _is_whole(region: Region) -> bool:
    """Whether a region covers its tile."""
    pairs = zip(region.start, region.extent, region.buffer.shape, strict=True)
    return all(int_value(s) == 0 and int_value(e) == int_value(n) for s, e, n in pairs)


def _bindings(body: Block) -> dict[Var, Expr]:
    return {stmt.var: stmt.value for stmt in body if isinstance(stmt, Bind)}


def _inlined(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` over variables from outside of the loop's body."""
    for _ in values:
        expr = substitute(expr, values)
    return expr


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
