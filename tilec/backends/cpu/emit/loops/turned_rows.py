"""Loops whose lanes each walk along a row of their own: rows change places with lanes in registers.

for j in serial(0, n): s[0] = s[0] + X[i, j]; Y[i, j] = s[0]     # i: lanes, 16 rows
->
for c in serial(0, n // 16):
    x[0:16] = the columns X[i, c * 16 + 0:16] of the lanes, from 16 rows that are read as vectors
    for j in serial(0, 16): s[0] = s[0] + x[j]; y[j] = s[0]
    Y[i, c * 16 + 0:16] = y[0:16], 16 rows that are written as vectors
for j in serial(n // 16 * 16, n): ..

One trip would look up one element a lane instead, each in a line of memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.panels.squares import named, transposed
from tilec.backends.cpu.emit.vectors.access import flat_index
from tilec.backends.cpu.emit.vectors.pieces import WIDEST_GAP
from tilec.backends.cpu.products.tir import span
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, same_all, substitute, transform, uses
from tilec.ir.nodes import Alloc, Block, For, Store, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.uses import addressed_in, written_in
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.loops import is_left_early
from tilec.lowering.emission.statements import sequence
from tilec.lowering.math.vectors import lanes_of
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext

#: Lanes below which elements are looked up as fast one by one.
_FEW = 8
#: Rows of each lane that are turned at most.
_MOST = 16


@dataclass(frozen=True, eq=False)
class _Row:
    """The element of ``buffer`` at ``indices`` that a trip has. ``tile`` holds those of as many trips as
    there are lanes: read in front of them where it ``is_read``, stored behind them if it ``is_written``."""

    tile: Var
    buffer: Var
    indices: tuple[Expr, ...]
    is_read: bool
    is_written: bool


def emit_turned(loop: For, ctx: LaneContext) -> tirx.Stmt | None:
    """A loop with steps of 1 whose lanes have rows of their own, some trips at a time; None where they have
    none, or there are no trips to take together."""
    if not _may_turn(loop, ctx):
        return None
    low, high = ctx.value(loop.start), ctx.value(loop.stop)
    extent = ctx.facts.analyzer.simplify(high - low)
    trips = int_value(extent)
    bounds = [node for bound in (low, high) for node in loads(bound)]
    if bounds or lanes_of(extent) > 1 or (trips is not None and trips < ctx.width):
        return None
    ctx.facts.bind_range(loop.var, loop.start, loop.stop)
    rows = _rows_of(loop, ctx)
    return _Turned(loop, rows, low, extent, ctx).emit() if rows else None


def _may_turn(loop: For, ctx: LaneContext) -> bool:
    """Whether all lanes take the trips of a loop, which may read ahead of what they store."""
    plain = ctx.lanes is not None and ctx.recorder is None and ctx.mask is None and ctx.first is None
    if not plain or ctx.width < _FEW or ctx.in_order or loop.kind != "serial":
        return False
    if is_left_early(loop.body) or not is_scalar_code(loop.body):
        return False
    return not any(stmt in ctx.accumulators for stmt in walk(loop.body))


def _rows_of(loop: For, ctx: LaneContext) -> list[_Row]:
    """What the trips of a loop have of rows, of which each lane has its own; none where it is too much."""
    inner = {var for stmt in walk(loop.body) for var in defined(stmt)}
    written, hidden = written_in(loop.body), addressed_in(loop.body)
    found: list[_Row] = []
    for buffer, items in _by_buffer(loop.body):
        indices = [tuple(ctx.facts.inline(index) for index in item.indices) for item in items]
        if buffer in hidden or (buffer in written and not _has_places(buffer, items, indices, loop, ctx)):
            continue
        for at in _each_once(indices):
            parts = [load.source for index in at for load in loads(index)]
            if any(uses(index, inner) for index in at) or not written.isdisjoint(parts):
                continue
            if _is_row(buffer, at, loop.var, ctx):
                tile = tirx.decl_buffer((ctx.width,), str(buffer.dtype), str(buffer.name), scope="local")
                reads = any(
                    not item.is_write and same_all(each, at)
                    for item, each in zip(items, indices, strict=True)
                )
                found.append(_Row(tile, buffer, at, reads, buffer in written))
    return found if len(found) <= _MOST else []


def _by_buffer(body: Block) -> Iterator[tuple[Var, list[Access]]]:
    found: dict[Var, list[Access]] = {}
    for item in accesses(body):
        found.setdefault(item.buffer, []).append(item)
    return iter(found.items())


def _each_once(places: list[tuple[Expr, ...]]) -> list[tuple[Expr, ...]]:
    found: list[tuple[Expr, ...]] = []
    for place in places:
        if not any(same_all(place, other) for other in found):
            found.append(place)
    return found


def _has_places(
    buffer: Var, items: list[Access], places: list[tuple[Expr, ...]], loop: For, ctx: LaneContext
) -> bool:
    """Whether a trip touches one element of each row of a buffer that it stores, whatever happens in it."""
    stores = [stmt for stmt in loop.body if isinstance(stmt, Store) and stmt.buffer.same_as(buffer)]
    once = _each_once(places)
    return len(stores) == sum(item.is_write for item in items) and all(
        _are_rows(one, other, ctx) for one, other in combinations(once, 2)
    )


def _are_rows(one: tuple[Expr, ...], other: tuple[Expr, ...], ctx: LaneContext) -> bool:
    """Whether two elements are the same ones of different rows."""
    gaps = (int_value(ctx.facts.analyzer.simplify(a - b)) for a, b in zip(one[:-1], other[:-1], strict=True))
    return same_all(one[-1:], other[-1:]) and any(gap for gap in gaps)


def _is_row(buffer: Var, indices: tuple[Expr, ...], var: Var, ctx: LaneContext) -> bool:
    """Whether trips of ``var`` have neighbours, which all exist, and lanes elements that lie apart."""
    storage = ctx.storages.get(buffer)
    if storage is None or storage.layout is not None or storage.copies > 1 or not indices:
        return False
    if int_value(storage.strides[-1]) != 1 or any(uses(index, (var,)) for index in indices[:-1]):
        return False
    linear = linear_in(indices[-1], [var])
    if not linear or int_value(linear[0]) != 1 or open_bounds(buffer, indices, ctx) != []:
        return False
    with ctx.scope():
        ctx.define(var)
        at = flat_index(storage, indices, ctx)
    step = int_value(at.stride) if isinstance(at, tirx.Ramp) else 0
    return isinstance(at, tirx.Ramp) and (step is None or abs(step) > max(WIDEST_GAP, ctx.width - 1))


@dataclass(frozen=True, eq=False)
class _Turned:
    """Emits one loop: ``extent`` trips from ``low`` on."""

    loop: For
    rows: list[_Row]
    low: Expr
    extent: Expr
    ctx: LaneContext

    def emit(self) -> tirx.Stmt | None:
        """The trips that are taken together, then those that are left."""
        ctx, dtype = self.ctx, dtype_of(self.loop.var)
        size = tirx.const(ctx.width, dtype)
        count = ctx.facts.analyzer.simplify(tirx.truncdiv(self.extent, size))
        names = [ctx.fresh(f"{self.loop.var.name}_{word}", dtype) for word in ("first", "parts", "done")]
        first, parts, done = names
        head = [tirx.Bind(first, self.low), tirx.Bind(parts, count)]
        together = self._together(first, count if int_value(count) is not None else parts)
        if together is None:
            return None
        left = ctx.facts.analyzer.simplify(self.extent - count * size)
        if int_value(left) == 0:
            return sequence([*head, together])
        with ctx.scope():
            var = ctx.define(self.loop.var)
            body = ctx.block(self.loop.body)
        if body is None:
            return None
        rest = ctx.loop(var, done, self.extent - parts * size if int_value(left) is None else left, body)
        return sequence([*head, together, tirx.Bind(done, first + parts * size), rest])

    def _together(self, first: Var, count: Expr) -> tirx.Stmt | None:
        ctx, var = self.ctx, self.loop.var
        dtype, trip = dtype_of(var), tirx.Var(f"{var.name}_trip", dtype_of(var))
        part = ctx.fresh(f"{var.name}_part", dtype)
        start = first + part * tirx.const(ctx.width, dtype)
        with ctx.scope():
            made = [ctx.emit(Alloc(row.tile)) for row in self.rows]
            read = [stmt for row in self.rows if row.is_read for stmt in self._moved(row, start, False)]
            with ctx.scope():
                ctx.facts.bind_range(trip, 0, ctx.width)
                at, number = ctx.define(var), ctx.define(trip)
                body = ctx.block(self._held(trip))
            if body is None:
                return None
            steps = sequence([tirx.Bind(at, start + number), body])
            trips = ctx.loop(number, tirx.const(0, dtype), tirx.const(ctx.width, dtype), steps)
            written = [stmt for row in self.rows if row.is_written for stmt in self._moved(row, start, True)]
        allocs = [stmt for stmt in made if stmt is not None]
        zero = tirx.const(0, dtype)
        return ctx.loop(part, zero, count, sequence([*allocs, *read, trips, *written]))

    def _held(self, trip: Var) -> Block:
        """The body of a trip, which has the elements of rows from their tiles."""

        def tile(buffer: Var, indices: tuple[Expr, ...]) -> Var | None:
            at = tuple(self.ctx.facts.inline(index) for index in indices)
            found = (r.tile for r in self.rows if r.buffer.same_as(buffer) and same_all(at, r.indices))
            return next(found, None)

        def visit(node: Expr) -> Expr | None:
            found = tile(node.source, tuple(node.indices)) if isinstance(node, TensorLoad) else None
            return None if found is None else tirx.BufferLoad(found, [trip])

        def stored(stmt: Store) -> Store:
            found = tile(stmt.buffer, stmt.indices)
            return stmt if found is None else replace(stmt, buffer=found, indices=(trip,))

        body = map_block(self.loop.body, lambda value: transform(value, visit))
        return tuple(stored(stmt) if isinstance(stmt, Store) else stmt for stmt in body)

    def _moved(self, row: _Row, start: Expr, back: bool) -> list[tirx.Stmt]:
        """The elements of a square block from rows to their tile, or ``back``."""
        ctx, var, width = self.ctx, tirx.Var(str(self.loop.var.name), dtype_of(self.loop.var)), self.ctx.width
        storage, tile = ctx.storage(row.buffer), ctx.storage(row.tile).data
        with ctx.scope():
            at = ctx.define(var)
            indices = [substitute(index, {self.loop.var: var}) for index in row.indices]
            places = flat_index(storage, indices, ctx)
        rows = [(storage.data, span(places.base + places.stride * lane, width)) for lane in range(width)]
        columns = [(tile, span(tirx.const(lane * width, "int32"), width)) for lane in range(width)]
        source, target = (columns, rows) if back else (rows, columns)
        parts: list[tirx.Stmt] = [tirx.Bind(at, start)]
        vectors = [named(tirx.BufferLoad(data, [place]), parts) for data, place in source]
        turned = zip(target, transposed(vectors, parts), strict=True)
        return [*parts, *(tirx.BufferStore(data, vector, [place]) for (data, place), vector in turned)]
