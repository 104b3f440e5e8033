"""Which element of the accumulator a register holds, and global elements loaded ahead of their use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.ir.nodes import Bind, Store
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cpu.uses import expressions
from tilec.lowering.cuda.hopper.build import i32, let, move, put, registers, when
from tilec.lowering.cuda.hopper.wgmma import ROWS
from tilec.lowering.cuda.vectors import vector_width
from tilec.lowering.exprs import loads, same, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.lowering.cuda.hopper.context import Context
    from tilec.lowering.cuda.hopper.nodes import TileStore

#: By the first register of a pair: global elements of it, and the registers that hold them.
Loaded: TypeAlias = "dict[int, list[tuple[TensorLoad, Var]]]"


class Lane:
    """Where a thread stands in its warpgroup's rows and columns."""

    def __init__(self, ctx: Context) -> None:
        self.lane = let("lane", T.truncmod(ctx.thread, i32(32)))
        self.warp = let("warp", T.truncdiv(ctx.thread, i32(32)))
        self.row = let("lane_row", self.warp * 16 + T.truncdiv(self.lane, i32(4)))
        self.column = let("lane_column", T.truncmod(self.lane, i32(4)) * 2)


def _place(stmt: TileStore, ctx: Context, lane: Lane, register: int) -> tuple[Expr, Expr]:
    """(i, j) of a register: two neighbours of a row, the same 8 rows below, then the next 8 columns."""
    block, rest = divmod(register, stmt.extents[1] // 2)
    column, half, side = rest // 4 * 8, rest % 4 // 2 * 8, rest % 2
    row = ctx.share * stmt.rows + lane.row + (block * ROWS + half)
    return row, lane.column + (column + side) + first_column(stmt, ctx)


def first_column(stmt: TileStore, ctx: Context) -> Expr | int:
    """The first column of this block's share of the tile."""
    return ctx.rank * stmt.extents[1] if stmt.parts > 1 else 0


def element(stmt: TileStore, ctx: Context, lane: Lane, register: int) -> dict[Var, Expr]:
    """The loop variables for the element in a register."""
    return dict(zip(stmt.vars, _place(stmt, ctx, lane, register), strict=True))


def load_ahead(stmt: TileStore, ctx: Context, lane: Lane, pairs: Sequence[int]) -> Loaded:
    """Starts the global loads of several pairs (first registers) before any of them is used; what does not
    depend on the row is loaded once a column."""
    columns: dict[tuple[int, int], Var] = {}
    loaded: Loaded = {}
    wanted = _pair_loads(stmt, ctx)
    for register in pairs:
        found = []
        for number, load in enumerate(wanted):
            rowless = not any(uses(index, stmt.vars[:1]) for index in load.indices)
            key = (number, register % (stmt.extents[1] // 2) // 4 if rowless else -1 - register)
            if key not in columns:
                with ctx.scope(element(stmt, ctx, lane, register)):
                    columns[key] = _loaded(load, ctx, register)
            found.append((load, columns[key]))
        loaded[register] = found
    return loaded


def _pair_loads(stmt: TileStore, ctx: Context) -> list[TensorLoad]:
    """Global elements that two neighbours of a row read side by side and that the loop does not write."""
    found: list[TensorLoad] = []
    bound = {inner.var for inner in stmt.body if isinstance(inner, Bind)}
    stored = {inner.buffer for inner in stmt.body if isinstance(inner, Store)}
    for load in (each for inner in stmt.body for expr in expressions(inner) for each in loads(expr)):
        indices = tuple(load.indices)
        if load.source not in ctx.tensors or load.source in stored or _is_residual(load, stmt):
            continue
        if any(uses(index, bound) or any(True for _ in loads(index)) for index in indices):
            continue
        known = any(same(load, other) for other in found)
        if not known and vector_width(load.source, indices, stmt.vars[1], 2, ctx.facts) == 2:
            found.append(load)
    return found


def _is_residual(load: TensorLoad, stmt: TileStore) -> bool:
    """Whether an element comes through the staging buffer."""
    return stmt.residual is not None and load.source.same_as(stmt.residual.buffer)


def _loaded(load: TensorLoad, ctx: Context, register: int) -> Var:
    """Two elements in registers, zeros where they are outside."""
    dtype, indices = str(load.source.dtype), tuple(load.indices)
    pair = registers(2, dtype)
    inside = ctx.inside(load.source, indices, register)
    at = ctx.offset(load.source, indices, register)
    size = 2 * element_bytes(dtype)
    if inside is None:
        move(pair, ctx.tensors[load.source], at, size)
        return pair
    for side in range(2):
        put(pair, tirx.const(0, dtype), side)
    with when(inside):
        move(pair, ctx.tensors[load.source], at, size)
    return pair
