"""Device code of BoxStore: words of a fragment to staging memory by stmatrix, from there by TMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import BoxStore
from tilec.backends.cuda.warp_roles.emit.build import cached, coordinate, emits, i32, ptx, u32, when
from tilec.backends.cuda.warp_roles.emit.staging import STORE, drain_stores, first_thread, group_barrier
from tilec.backends.cuda.warp_roles.ring import stage_bytes
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr

#: stmatrix.x4 moves blocks of 16 x 16 elements.
_BLOCK = 16


@emits(BoxStore)
def _store(stmt: BoxStore, ctx: AttentionContext) -> None:
    columns = int_value(stmt.src.extent[-1]) or 1
    with when(first_thread(ctx)):
        drain_stores()
    group_barrier(ctx)
    for column in range(0, columns, _BLOCK):
        _matrix(stmt, column, columns, ctx)
    ptx("fence.proxy.async.shared::cta")
    group_barrier(ctx)
    with when(first_thread(ctx)):
        _send(stmt, columns, ctx)


def _slab(stmt: BoxStore, ctx: AttentionContext, column: int) -> Expr:
    """The slab of a column of this warpgroup: slabs of 128 bytes hold the rows of all warpgroups."""
    width = ROW_BYTES // 2
    slab = column // width * ROWS * ctx.roles.consumers * ROW_BYTES
    first = ctx.shared(stmt.staging, slab) + u32(ctx.warpgroup) * u32(ROWS * ROW_BYTES)
    if stmt.staging not in ctx.positions:
        return first
    return first + u32(ctx.positions[stmt.staging].stage) * u32(stage_bytes(stmt.staging))


def _matrix(stmt: BoxStore, column: int, columns: int, ctx: AttentionContext) -> None:
    """16 x 16 elements of each warp, or the last 8 columns; lane l names row l % 16 of the columns' half
    l // 16."""
    words = ctx.held[stmt.src.buffer]
    lane = tirx.truncmod(ctx.own, i32(32))
    row = tirx.truncmod(lane, i32(16))
    inside = tirx.truncdiv(ctx.own, i32(32)) * 16 + row
    chunk = tirx.bitwise_xor(
        tirx.truncdiv(lane, i32(16)) + column * 2 % ROW_BYTES // 16, tirx.truncmod(row, i32(8))
    )
    at = _slab(stmt, ctx, column) + u32(inside * ROW_BYTES + chunk * 16)
    count = min(4, (columns - column) // 4)
    held = [words[column // 4 + quarter] for quarter in range(count)]
    ptx(f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16", at, *held)


def _send(stmt: BoxStore, columns: int, ctx: AttentionContext) -> None:
    axis = next(at for at, extent in enumerate(stmt.map.box) if extent == ROWS)
    start = [coordinate(ctx.value(index)) for index in stmt.start]
    start[axis] = start[axis] + ctx.warpgroup * ROWS
    name, policy = cached(STORE.format(rank=len(start)), stmt.evict)
    for column in range(0, columns, stmt.map.box[-1]):
        at = [*start[:-1], start[-1] + column]
        ptx(name, ctx.map_of(stmt.map), *reversed(at), _slab(stmt, ctx, column), *policy)
    ptx("cp.async.bulk.commit_group")
