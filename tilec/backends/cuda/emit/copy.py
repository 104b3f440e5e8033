"""AsyncCopy as cp.async instructions: each thread moves some of the pieces, zeros where the source ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fragments import coalesced
from tilec.backends.cuda.analysis.loops import loop_extents
from tilec.backends.cuda.device.moves import cp_async
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loop import over_layout
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import AsyncCopy
from tilec.ir.exprs import all_of
from tilec.ir.nodes import Copy, Parallel, Store
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr


@emit.register(AsyncCopy)
def _emit_async_copy(stmt: AsyncCopy, ctx: DeviceContext) -> tirx.Stmt | None:
    loop = expand_copy(Copy(stmt.src, stmt.dst))
    assert isinstance(loop, Parallel)
    (store,) = loop.body
    assert isinstance(store, Store)
    extents = loop_extents(loop)
    layout = coalesced(extents, ctx.warps, stmt.width)
    piece = partial(_piece, stmt, store, ctx)
    return over_layout(loop.vars, extents, layout, stmt.width, piece, ctx, once=True)


def _piece(stmt: AsyncCopy, store: Store, ctx: DeviceContext) -> tirx.Stmt:
    """One cp.async."""
    source = store.value
    size = stmt.width * element_bytes(str(stmt.dst.buffer.dtype))
    conds = open_bounds(source.source, tuple(source.indices), ctx)
    if conds is None:
        conds = [tirx.const(False, "bool")]
    target, origin = ctx.storage(stmt.dst.buffer), ctx.storage(stmt.src.buffer)
    to = target.offset([ctx.value(index) for index in store.indices])
    start = origin.offset([ctx.value(index) for index in source.indices])
    full = tirx.const(size, "int32")
    count: Expr = full
    if conds:
        count = tirx.Select(ctx.value(all_of(conds)), full, tirx.const(0, "int32"))
    return call(cp_async(size, stmt.evict).call(target.data.ptr_to([to]), origin.data.ptr_to([start]), count))
