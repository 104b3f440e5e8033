"""Device code of epilogues: arithmetic in the registers of an accumulator, and how the results leave."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.vectors import vector_width
from tilec.backends.cuda.analysis.wgmma import ROWS
from tilec.backends.cuda.device.atomics import add_vector, atomic
from tilec.backends.cuda.warp_roles.build import (
    cached,
    coordinate,
    i32,
    let,
    pin,
    ptx,
    put,
    registers,
    run,
    u32,
    when,
)
from tilec.backends.cuda.warp_roles.emit_rows import send_rows
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.backends.cuda.warp_roles.load_ahead import Lane, Loaded, LoadsAhead, element
from tilec.backends.cuda.warp_roles.neighbours import Column, reads_pairs
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.staging import (
    STORE,
    boxes,
    drain_stores,
    first_thread,
    group_barrier,
    staging_buffer,
)
from tilec.ir.exprs import dtype_of, uses, walk
from tilec.ir.nodes import Atomic, Bind, Stmt, Store
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import expressions
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.expand_copies import cast_to

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.context import TileContext
    from tilec.backends.cuda.warp_roles.emit_residual import Residual
    from tilec.backends.cuda.warp_roles.nodes import TileStore

_STRAIGHT = "stmatrix.sync.aligned.m8n8.x4.shared.b16"
_TURNED = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
_PACK = {"float16": "f16", "bfloat16": "bf16"}
#: stmatrix.x4 moves blocks of 16 x 16 elements; TMA buffers have rows of 32, 64 or 128 bytes.
_BLOCK = 16


def emit_store(stmt: TileStore, ctx: TileContext, lane: Lane, residual: Residual | None = None) -> None:
    """One epilogue loop; what it reads where it stores comes from ``residual``."""
    for var, extent in zip(stmt.vars, (stmt.extents[0], stmt.extents[1] * stmt.parts), strict=True):
        ctx.facts.bind_range(var, 0, extent)
    ctx.mark(stmt)
    condition, body = conditioned(stmt.body)
    if not stmt.columns:
        _plain(stmt, ctx, lane)
        _pin_bits(stmt, ctx)
        return
    if condition is None:
        _staged(stmt, ctx, lane, residual)
        return
    last_row = {stmt.vars[0]: ctx.share * stmt.rows + (stmt.rows - 1)}
    with ctx.scope(last_row):
        whole = let("whole", ctx.value(condition))
    with T.If(whole):
        with T.Then():
            _staged(replace(stmt, body=body), ctx, lane, None)
        with T.Else():
            _plain(stmt, ctx, lane)


def _pin_bits(stmt: TileStore, ctx: TileContext) -> None:
    """Sums that are made of bits become floats here: ptxas makes the products of the next tile wait for each
    other where the compiler hands integers on to them."""
    values = [value for inner in walk_statements(stmt.body) for value in expressions(inner)]
    if not any(call_name(node) == "reinterpret" for value in values for node in walk(value)):
        return
    for buffer in written_in(stmt.body) & set(ctx.held):
        pin(ctx.held[buffer], stmt.rows * stmt.extents[1] // WARPGROUP)


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


# ---- each thread its own elements ----


def _plain(stmt: TileStore, ctx: TileContext, lane: Lane) -> None:
    condition, body = conditioned(stmt.body)
    stmt = replace(stmt, body=body)
    last = stmt.body[-1]
    pairs = isinstance(last, (Store, Atomic)) and _in_pairs(last, stmt, condition, ctx)
    ahead = LoadsAhead(stmt, ctx, lane)
    for register in range(0, stmt.rows * stmt.extents[1] // 128, 2):
        if pairs and isinstance(last, (Store, Atomic)):
            _pair(stmt, last, condition, ctx, lane, register, ahead)
            continue
        loaded = ahead.of([register])[register]
        for side in range(2):
            with (
                ctx.scope(element(stmt, ctx, lane, register + side)),
                ctx.loaded_from(loaded, side),
                ctx.of_pair(_column(stmt, ctx, side)),
                _where(condition, ctx),
            ):
                _body(stmt.body, ctx, register + side)


def _column(stmt: TileStore, ctx: TileContext, side: int) -> Column | None:
    """The column of an element, where a loop reads others of its pair."""
    _, column = stmt.vars
    return Column(column, side) if reads_pairs(stmt.body, column, set(ctx.held)) else None


def _where(condition: Expr | None, ctx: TileContext) -> AbstractContextManager[None]:
    return nullcontext() if condition is None else when(ctx.value(condition))


def _in_pairs(last: Store | Atomic, stmt: TileStore, condition: Expr | None, ctx: TileContext) -> bool:
    """Whether two neighbours of a row may be stored at once."""
    if last.buffer in ctx.held or str(last.buffer.dtype) not in ("float32", *_PACK):
        return False
    if condition is not None and uses(condition, stmt.vars[1:]):
        return False
    return vector_width(last.buffer, last.indices, stmt.vars[1], 2, ctx.facts) == 2


def _pair_values(
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
    condition: Expr | None,
    ctx: TileContext,
    lane: Lane,
    register: int,
    ahead: LoadsAhead,
) -> None:
    loaded = ahead.of([register])
    packs = str(last.buffer.dtype) in _PACK
    value = _wide(last.value) if packs else last.value
    values = _pair_values(stmt, value, ctx, lane, register, loaded)
    if packs:
        packed = registers(1, "uint32")
        ptx(_packing(last), packed[0], values[1], values[0])
    with ctx.scope(element(stmt, ctx, lane, register)), ctx.loaded_from(loaded.get(register, []), 0):
        at = ctx.flat_index(last.buffer, last.indices, register)
        inside = ctx.inside(last.buffer, last.indices, register)
        if condition is not None:
            wanted = ctx.value(condition)
            inside = wanted if inside is None else tirx.And(wanted, inside)
        address = T.address_of(ctx.tensors[last.buffer][at])
        with when(inside) if inside is not None else nullcontext():
            if isinstance(last, Atomic):
                words = [packed[0]] if packs else values
                run(add_vector(str(last.buffer.dtype), 2).call(address, *words))
            elif packs:
                ptx("st.global.b32", address, packed[0])
            else:
                ptx("st.global.v2.f32", address, *values)


def _packing(store: Store | Atomic) -> str:
    """The instruction that makes two elements of two float32 values."""
    return f"cvt.rn.{_PACK[str(store.buffer.dtype)]}x2.f32"


# ---- through a staging buffer ----


def _staged(stmt: TileStore, ctx: TileContext, lane: Lane, residual: Residual | None) -> None:
    """Chunks of columns: convert, stmatrix, then a TMA store or rows by all threads; the stores of earlier
    chunks go on meanwhile."""
    ahead = LoadsAhead(stmt, ctx, lane)
    for chunk, start in enumerate(stmt.chunks):
        buffer = staging_buffer(stmt, ctx, chunk)
        if residual is not None:
            residual.wait(chunk)
        elif chunk == 0 or chunk >= stmt.buffers:
            _wait_for_buffer(ctx, 0 if chunk == 0 else stmt.buffers - 1)
        for block in range(stmt.rows // ROWS):
            firsts = {column: _first(stmt, block, start + column)
                      for column in range(0, stmt.columns, _BLOCK)}  # fmt: skip
            pairs = [first + quarter * 2 for first in firsts.values() for quarter in range(4)]
            loaded = ahead.of(pairs)
            for column, first in firsts.items():
                at = buffer + _matrix_row(stmt, lane, block, column)
                for quarter, pair in enumerate(residual.pairs(at) if residual is not None else ()):
                    loaded[first + quarter * 2].append(pair)
                _matrix(stmt, ctx, lane, at, first, loaded)
        if stmt.map is not None:
            ptx("fence.proxy.async.shared::cta")
        group_barrier(ctx)
        if stmt.map is None:
            send_rows(stmt, ctx, lane, buffer, chunk)
            continue
        with when(first_thread(ctx)):
            _send(stmt, ctx, buffer, chunk)
            if residual is not None:
                residual.go_on(chunk)


def _wait_for_buffer(ctx: TileContext, pending: int) -> None:
    with when(first_thread(ctx)):
        drain_stores(pending)
    group_barrier(ctx)


def _first(stmt: TileStore, block: int, column: int) -> int:
    """The register of the first element of a column in a block of 64 rows."""
    return block * stmt.extents[1] // 2 + column // 2


def _matrix(
    stmt: TileStore,
    ctx: TileContext,
    lane: Lane,
    at: Expr,
    first: int,
    loaded: Loaded,
) -> None:
    """One block of 16 x 16 elements of each warp to its places in the staging buffer."""
    packed = registers(4, "uint32")
    for quarter in range(4):
        _pack(stmt, ctx, lane, packed, quarter, first + quarter * 2, loaded)
    ptx(_TURNED if stmt.turned else _STRAIGHT, at, *[packed[quarter] for quarter in range(4)])


def _matrix_row(stmt: TileStore, lane: Lane, block: int, column: int) -> Expr:
    """Byte offset in the staging buffer of the row of 16 bytes that a lane names to stmatrix."""
    if stmt.turned:
        row, half = T.truncmod(lane.lane, i32(8)), T.truncmod(T.truncdiv(lane.lane, i32(8)), i32(2))
        below = T.truncdiv(lane.lane, i32(16)) * 8 + row
        place = T.bitwise_xor(lane.warp * 2 + half, row)
        return u32((block * stmt.columns + column) * ROWS * 2) + u32(below * (ROWS * 2) + place * 16)
    pitch = stmt.columns * 2
    row = T.truncmod(lane.lane, i32(16))
    swap = T.truncmod(T.truncdiv(row * pitch, i32(128)), i32(pitch // 16))
    place = T.bitwise_xor(T.truncdiv(lane.lane, i32(16)) + column // 8, swap)
    return u32(block * ROWS * pitch) + u32((lane.warp * 16 + row) * pitch + place * 16)


def _pack(
    stmt: TileStore, ctx: TileContext, lane: Lane, packed: Var, quarter: int, register: int, loaded: Loaded
) -> None:
    """Two neighbours, converted, in one register."""
    last = stmt.body[-1]
    assert isinstance(last, Store)
    values = _pair_values(stmt, _wide(last.value), ctx, lane, register, loaded)
    ptx(_packing(last), packed[quarter], values[1], values[0])


def _wide(value: Expr) -> Expr:
    """A 16-bit value before its conversion, or widened again, which changes nothing."""
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "float32":
        return value.value
    return tirx.Cast("float32", value)


def _send(stmt: TileStore, ctx: TileContext, buffer: Expr, chunk: int) -> None:
    last = stmt.body[-1]
    assert isinstance(last, Store)
    assert stmt.map is not None
    name, policy = cached(STORE.format(rank=len(last.indices)), stmt.evict)
    for offset, start in boxes(stmt, ctx, chunk, tuple(last.indices)):
        ptx(name, ctx.map_of(stmt.map), *map(coordinate, reversed(start)), buffer + u32(offset), *policy)
    ptx("cp.async.bulk.commit_group")
