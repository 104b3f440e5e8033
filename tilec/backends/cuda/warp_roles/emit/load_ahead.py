"""Which element of the accumulator a register holds, and global elements loaded ahead of their use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.accesses.vectors import vector_width
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.warp_roles.emit.build import i32, let, move, put, registers, when
from tilec.ir.exprs import loads, same, uses
from tilec.ir.nodes import Atomic, Bind, Store
from tilec.ir.traits import loads_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.nodes import TileStore

#: By the first register of a pair: global elements of it, and the registers that hold them.
Loaded: TypeAlias = "dict[int, list[tuple[TensorLoad, Var]]]"


class Lane:
    """Where a thread stands in its warpgroup's rows and columns."""

    def __init__(self, ctx: TileContext) -> None:
        self.lane = let("lane", T.truncmod(ctx.own, i32(32)))
        self.warp = let("warp", T.truncdiv(ctx.own, i32(32)))
        self.row = let("lane_row", self.warp * 16 + T.truncdiv(self.lane, i32(4)))
        self.column = let("lane_column", T.truncmod(self.lane, i32(4)) * 2)


def _place(stmt: TileStore, ctx: TileContext, lane: Lane, register: int) -> tuple[Expr, Expr]:
    """(i, j) of a register: two neighbours of a row, the same 8 rows below, then the next 8 columns."""
    block, rest = divmod(register, stmt.extents[1] // 2)
    column, half, side = rest // 4 * 8, rest % 4 // 2 * 8, rest % 2
    row = ctx.share * stmt.rows + lane.row + (block * ROWS + half)
    return row, lane.column + (column + side) + first_column(stmt, ctx)


def first_column(stmt: TileStore, ctx: TileContext) -> Expr | int:
    """The first column of this block's share of the tile."""
    return ctx.rank * stmt.extents[1] if stmt.parts > 1 else 0


def element(stmt: TileStore, ctx: TileContext, lane: Lane, register: int) -> dict[Var, Expr]:
    """The loop variables for the element in a register."""
    return dict(zip(stmt.vars, _place(stmt, ctx, lane, register), strict=True))


class LoadsAhead:
    """The global loads of one epilogue loop. What depends on the row alone is loaded here, once a tile."""

    def __init__(self, stmt: TileStore, ctx: TileContext, lane: Lane) -> None:
        self._stmt, self._ctx, self._lane = stmt, ctx, lane
        self._half = stmt.extents[1] // 2
        wanted = _loads(stmt, ctx)
        self._pairs = [load for load in wanted if _moves_with(load, stmt.vars[1:])]
        rows = [load for load in wanted if not _moves_with(load, stmt.vars[1:])]
        firsts = [block * self._half + half for block in range(stmt.rows // ROWS) for half in (0, 2)]
        self._rows = {self._row(first): self._loaded_once(rows, first) for first in firsts if rows}

    def of(self, pairs: Sequence[int]) -> Loaded:
        """Starts the loads of several pairs (first registers) before any of them is used; what does not
        depend on the row is loaded once a column."""
        columns: dict[tuple[int, int], Var] = {}
        loaded: Loaded = {}
        for register in pairs:
            found = list(self._rows.get(self._row(register), ()))
            for number, load in enumerate(self._pairs):
                rowless = not _moves_with(load, self._stmt.vars[:1])
                key = (number, register % self._half // 4 if rowless else -1 - register)
                if key not in columns:
                    with self._at(register):
                        columns[key] = _loaded(load, self._ctx, register)
                found.append((load, columns[key]))
            loaded[register] = found
        return loaded

    def _row(self, register: int) -> tuple[int, int]:
        """Which of this thread's rows a register belongs to."""
        return register // self._half, register % 4 // 2

    def _at(self, register: int) -> AbstractContextManager[None]:
        return self._ctx.scope(element(self._stmt, self._ctx, self._lane, register))

    def _loaded_once(self, rows: Sequence[TensorLoad], register: int) -> list[tuple[TensorLoad, Var]]:
        """One element each, for both neighbours of every pair of the row."""
        found = []
        with self._at(register):
            for load in rows:
                pair = registers(2, str(load.source.dtype))
                value = let("of_row", self._ctx.value(load, register))
                put(pair, value, 0)
                put(pair, value, 1)
                found.append((load, pair))
        return found


def _moves_with(load: TensorLoad, variables: Sequence[Var]) -> bool:
    """Whether the place of an element depends on one of ``variables``."""
    return any(uses(index, variables) for index in load.indices)


def _loads(stmt: TileStore, ctx: TileContext) -> list[TensorLoad]:
    """Global elements that the loop does not write and that two neighbours of a row read side by side, or
    both alike."""
    found: list[TensorLoad] = []
    bound = {inner.var for inner in stmt.body if isinstance(inner, Bind)}
    stored = {inner.buffer for inner in stmt.body if isinstance(inner, (Store, Atomic))}
    for load in loads_of(*stmt.body):
        indices = tuple(load.indices)
        if load.source not in ctx.tensors or load.source in stored or _is_residual(load, stmt):
            continue
        if any(uses(index, bound) or any(True for _ in loads(index)) for index in indices):
            continue
        known = any(same(load, other) for other in found)
        alike = not _moves_with(load, stmt.vars[1:])
        if not known and (alike or vector_width(load.source, indices, stmt.vars[1], 2, ctx.facts) == 2):
            found.append(load)
    return found


def _is_residual(load: TensorLoad, stmt: TileStore) -> bool:
    """Whether an element comes through the staging buffer."""
    return stmt.residual is not None and load.source.same_as(stmt.residual.buffer)


def _loaded(load: TensorLoad, ctx: TileContext, register: int) -> Var:
    """Two elements in registers, zeros where they are outside."""
    dtype, indices = str(load.source.dtype), tuple(load.indices)
    pair = registers(2, dtype)
    inside = ctx.inside(load.source, indices, register)
    at = ctx.flat_index(load.source, indices, register)
    size = 2 * element_bytes(dtype)
    if inside is None:
        move(pair, ctx.tensors[load.source], at, size)
        return pair
    for side in range(2):
        put(pair, tirx.const(0, dtype), side)
    with when(inside):
        move(pair, ctx.tensors[load.source], at, size)
    return pair
