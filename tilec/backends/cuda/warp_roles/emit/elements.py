"""Device code of epilogues whose threads store their own elements, one by one or in pairs of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.accesses.vectors import vector_width
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.device.atomics import add_vector, atomic
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.warp_roles.emit.build import (
    i32,
    let,
    ptx,
    put,
    registers,
    run,
    when,
)
from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane, Loaded, LoadsAhead, element
from tilec.backends.cuda.warp_roles.epilogue import moves_by_one
from tilec.backends.cuda.warp_roles.neighbours import Column, reads_pairs
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.stores import ends_rows
from tilec.ir.exprs import all_of, cast_to, dtype_of, loads, uses
from tilec.ir.nodes import Atomic, Bind, Stmt, Store
from tilec.lowering.analysis.scopes import conditioned

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.emit.context import TileContext
    from tilec.backends.cuda.warp_roles.nodes import TileStore
    from tilec.ir.stmt import Block

#: Pairs whose global elements are loaded before the first of them is stored: a load behind a store would wait
#: for its turn, and all of them one behind the other.
_AHEAD = 8


def emit_elements(stmt: TileStore, ctx: TileContext, lane: Lane) -> None:
    """Elements of whole tiles without a test: with one for each, 64 pairs are 30 KB of instructions, which
    take longer to come than to run. Pairs test their rows, once each, in either form: a tile need be whole
    along its columns alone."""
    condition, body = conditioned(stmt.body)
    ends, rest = _ends(stmt, body, condition, ctx)
    if _row_by_row(replace(stmt, body=body), condition, ctx):
        ends, rest = [end for end in ends if uses(end, stmt.vars[1:])], condition
    if not ends:
        _elements(stmt, body, condition, ctx, lane)
        return
    row, column = stmt.vars
    last_row, last_column = ctx.share * stmt.rows + (stmt.rows - 1), i32(stmt.extents[1] * stmt.parts - 1)
    with ctx.scope({row: last_row, column: last_column}):
        whole = let("whole", ctx.value(all_of(ends)))
    with T.If(whole):
        with T.Then(), ctx.facts.assume(all_of(ends)):
            _elements(stmt, body, rest, ctx, lane)
        with T.Else():
            _elements(stmt, body, condition, ctx, lane)


def _ends(
    stmt: TileStore, body: Sequence[Stmt], condition: Expr | None, ctx: TileContext
) -> tuple[list[Expr], Expr | None]:
    """Conditions of an element that hold for all of a tile where they hold for the last one, and what is left
    of ``condition`` then."""
    last = body[-1]
    if not isinstance(last, (Store, Atomic)) or last.buffer in ctx.held:
        return [], condition
    found = [] if condition is None or not _ends_along(condition, stmt.vars) else [condition]
    rest = None if found else condition
    ends = ctx.ends(last.buffer, last.indices)
    return found + [end for end in ends if isinstance(end, tirx.LT) and _grows(end.a, stmt.vars)], rest


def _ends_along(condition: Expr, loop_vars: Sequence[Var]) -> bool:
    """Whether a condition is a bound of the rows or of the columns alone."""
    return any(ends_rows(condition, order) for order in (loop_vars, loop_vars[::-1]))


def _grows(index: Expr, loop_vars: Sequence[Var]) -> bool:
    """Whether an index grows by one with one of the variables, and does not depend on the other."""
    used = [var for var in loop_vars if uses(index, (var,))]
    return len(used) == 1 and moves_by_one(index, used[0])


def _elements(stmt: TileStore, body: Block, condition: Expr | None, ctx: TileContext, lane: Lane) -> None:
    stmt = replace(stmt, body=body)
    last = stmt.body[-1]
    ahead = LoadsAhead(stmt, ctx, lane)
    if isinstance(last, (Store, Atomic)) and _in_pairs(last, stmt, condition, ctx):
        for registers in _rows_of_pairs(stmt):
            _pairs_of_row(stmt, last, condition, ctx, lane, registers, ahead)
        return
    for register, loaded in _loaded_ahead(ahead, range(0, stmt.rows * stmt.extents[1] // WARPGROUP, 2)):
        for side in range(2):
            with (
                ctx.scope(element(stmt, ctx, lane, register + side)),
                ctx.loaded_from(loaded[register], side),
                ctx.of_pair(_column(stmt, ctx, side)),
                _where(condition, ctx),
            ):
                _body(stmt.body, ctx, register + side)


def _loaded_ahead(ahead: LoadsAhead, pairs: Sequence[int]) -> Iterator[tuple[int, Loaded]]:
    """Pairs by their first registers, some of which have begun to load together."""
    for first in range(0, len(pairs), _AHEAD):
        batch = pairs[first : first + _AHEAD]
        loaded = ahead.of(batch)
        yield from ((register, loaded) for register in batch)


def _rows_of_pairs(stmt: TileStore) -> list[list[int]]:
    """For each row of a thread the first registers of its pairs of neighbours."""
    width = stmt.extents[1] // 2
    starts = [block * width + half for block in range(stmt.rows // ROWS) for half in (0, 2)]
    return [list(range(start, start + width - start % width, 4)) for start in starts]


def _pairs_of_row(
    stmt: TileStore,
    last: Store | Atomic,
    condition: Expr | None,
    ctx: TileContext,
    lane: Lane,
    registers: list[int],
    ahead: LoadsAhead,
) -> None:
    """The pairs of a row, under what is to be tested of it, once."""
    tests = [] if condition is None else [condition]
    if _stores_last(stmt):
        tests += [each for each in ctx.tests(last.buffer, last.indices) if not uses(each, stmt.vars[1:])]
    if not tests:
        _pairs(stmt, last, ctx, lane, registers, ahead)
        return
    first, test = registers[0], all_of(tests)
    loaded = ahead.of([first])[first] if any(True for _ in loads(test)) else []
    with ctx.scope(element(stmt, ctx, lane, first)), ctx.loaded_from(loaded, 0):
        leaves = let("row_leaves", ctx.value(test, first))
    with when(leaves), ctx.facts.assume(test):
        _pairs(stmt, last, ctx, lane, registers, ahead)


def _pairs(
    stmt: TileStore,
    last: Store | Atomic,
    ctx: TileContext,
    lane: Lane,
    registers: Sequence[int],
    ahead: LoadsAhead,
) -> None:
    for register, loaded in _loaded_ahead(ahead, registers):
        _pair(stmt, last, ctx, lane, register, loaded)


def _column(stmt: TileStore, ctx: TileContext, side: int) -> Column | None:
    """The column of an element, where a loop reads others of its pair."""
    _, column = stmt.vars
    return Column(column, side) if reads_pairs(stmt.body, column, set(ctx.held)) else None


def _where(condition: Expr | None, ctx: TileContext) -> AbstractContextManager[None]:
    return nullcontext() if condition is None else when(ctx.value(condition))


def _in_pairs(last: Store | Atomic, stmt: TileStore, condition: Expr | None, ctx: TileContext) -> bool:
    """Whether two neighbours of a row may be stored at once."""
    if last.buffer in ctx.held or str(last.buffer.dtype) not in ("float32", *PAIRED):
        return False
    if condition is not None and uses(condition, stmt.vars[1:]):
        return False
    return vector_width(last.buffer, last.indices, stmt.vars[1], 2, ctx.facts) == 2


def _row_by_row(stmt: TileStore, condition: Expr | None, ctx: TileContext) -> bool:
    """Whether elements leave in pairs whose rows are tested once each."""
    last = stmt.body[-1]
    leaves = isinstance(last, (Store, Atomic)) and _in_pairs(last, stmt, condition, ctx)
    return leaves and _stores_last(stmt)


def _stores_last(stmt: TileStore) -> bool:
    """Whether nothing is stored in front of the last statement."""
    return all(isinstance(inner, Bind) for inner in stmt.body[:-1])


def pair_values(
    stmt: TileStore, value: Expr, ctx: TileContext, lane: Lane, register: int, loaded: Loaded
) -> list[Expr]:
    """The last store's value for two neighbours of a row, after the statements before it."""
    values = []
    for side in range(2):
        with (
            ctx.scope(element(stmt, ctx, lane, register + side)),
            ctx.loaded_from(loaded.get(register, []), side),
            ctx.of_pair(_column(stmt, ctx, side)),
        ):
            _body(stmt.body[:-1], ctx, register + side)
            values.append(let("value", ctx.value(value, register + side)))
    return values


def _pair(
    stmt: TileStore,
    last: Store | Atomic,
    ctx: TileContext,
    lane: Lane,
    register: int,
    loaded: Loaded,
) -> None:
    packs = str(last.buffer.dtype) in PAIRED
    value = wide(last.value) if packs else last.value
    values = pair_values(stmt, value, ctx, lane, register, loaded)
    if packs:
        packed = registers(1, "uint32")
        ptx(packing(last), packed[0], values[1], values[0])
    with ctx.scope(element(stmt, ctx, lane, register)), ctx.loaded_from(loaded.get(register, []), 0):
        at = ctx.flat_index(last.buffer, last.indices, register)
        inside = ctx.inside(last.buffer, last.indices, register)
        address = T.address_of(ctx.tensors[last.buffer][at])
        with when(inside) if inside is not None else nullcontext():
            if isinstance(last, Atomic):
                words = [packed[0]] if packs else values
                run(add_vector(str(last.buffer.dtype), 2).call(address, *words))
            elif packs:
                ptx("st.global.b32", address, packed[0])
            else:
                ptx("st.global.v2.f32", address, *values)


def packing(store: Store | Atomic) -> str:
    """The instruction that makes two elements of two float32 values."""
    return f"cvt.rn.{PAIRED[str(store.buffer.dtype)]}x2.f32"


def _body(stmts: Sequence[Stmt], ctx: TileContext, register: int) -> None:
    """Bindings and stores for one element."""
    for inner in stmts:
        if isinstance(inner, Bind):
            ctx.env[inner.var] = let(str(inner.var.name), ctx.value(inner.value, register))
        elif isinstance(inner, (Store, Atomic)):
            _store(inner, ctx, register)


def _store(inner: Store | Atomic, ctx: TileContext, register: int) -> None:
    value = ctx.value(inner.value, register)
    if inner.buffer in ctx.held:
        held = ctx.held[inner.buffer]
        put(held, cast_to(value, str(held.dtype)), register)
        return
    inside = ctx.inside(inner.buffer, inner.indices, register)
    at = ctx.flat_index(inner.buffer, inner.indices, register)
    with when(inside) if inside is not None else nullcontext():
        if isinstance(inner, Store):
            T.buffer_store(ctx.tensors[inner.buffer], value, [at])
            return
        add = atomic("add", str(inner.buffer.dtype), "relaxed")
        assert add is not None
        run(add.call(T.address_of(ctx.tensors[inner.buffer][at]), value))


def wide(value: Expr) -> Expr:
    """A 16-bit value before its conversion, or widened again, which changes nothing."""
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "float32":
        return value.value
    return tirx.Cast("float32", value)
