"""AsyncCopy as cp.async instructions: each thread moves some of the pieces, zeros where the source ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.low_places import place_width
from tilec.backends.cuda.analysis.layouts.fragments import coalesced
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.device.ends import WORD, read_end
from tilec.backends.cuda.device.moves import cp_async
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.spots import existing, rest
from tilec.backends.cuda.emit.loops.thread_loop import Iterations, over_layout
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import AsyncCopy
from tilec.ir.exprs import all_of, dtype_of
from tilec.ir.nodes import Copy, Parallel, Store
from tilec.lowering.emission.storage import convert, element_bytes
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
    places = tuple(store.value.indices)
    known = place_width(stmt.src.buffer, places, loop.vars[-1], stmt.width, ctx.facts) == stmt.width
    piece = partial(_piece, stmt, store, known, ctx)
    return over_layout(Iterations(loop.vars, extents, layout, stmt.width), piece, ctx, once=True)


def _piece(stmt: AsyncCopy, store: Store, known: bool, ctx: DeviceContext) -> tirx.Stmt:
    """One cp.async, of zeros where it is outside of the source; ``known``: that it begins at a multiple of
    its width."""
    source, size = store.value, stmt.width * element_bytes(str(stmt.dst.buffer.dtype))
    indices = tuple(source.indices)
    full, none = tirx.const(size, "int32"), tirx.const(0, "int32")
    target, origin = ctx.storage(stmt.dst.buffer), ctx.storage(stmt.src.buffer)
    to = target.data.ptr_to([target.offset([ctx.value(index) for index in store.indices])])
    start = origin.offset([ctx.value(index) for index in indices])
    moved = partial(cp_async(size, stmt.evict).call, to, origin.data.ptr_to([start]))
    exists = existing(stmt.src.buffer, indices, ctx)
    if not stmt.ends:
        return call(moved(tirx.Select(all_of(exists), full, none) if exists else full))
    last = indices[-1] + tirx.const(stmt.width - 1, dtype_of(indices[-1]))
    begins = [] if known else [tirx.EQ(rest(start, stmt.width), none)]
    whole = [*begins, *exists, *existing(stmt.src.buffer, (*indices[:-1], last), ctx)]
    if not whole:
        return call(moved(full))
    return tirx.IfThenElse(all_of(whole), call(moved(full)), call(_end(stmt, indices, to, ctx)))


def _end(stmt: AsyncCopy, indices: tuple[Expr, ...], to: Expr, ctx: DeviceContext) -> Expr:
    """What moves the elements of a piece that are in their row, and zeros for others; of wider ones than
    words their words."""
    each, origin = element_bytes(str(stmt.dst.buffer.dtype)), ctx.storage(stmt.src.buffer)
    values = [ctx.value(index) for index in indices]
    extent = convert(ctx.value(origin.shape[-1]), "int64")
    row = existing(stmt.src.buffer, (*indices[:-1], tirx.const(0, dtype_of(indices[-1]))), ctx)
    if row:
        extent = tirx.Select(all_of(row), extent, tirx.const(0, "int64"))
    words = max(1, each // WORD)
    zero, parts = tirx.const(0, "int32"), tirx.const(words, "int64")
    start, place, index = origin.data.ptr_to([zero]), origin.offset(values), values[-1]
    read = read_end(stmt.width * each, each // words)
    of_parts = (convert(value, "int64") * parts for value in (place, index, extent))
    return read.call(to, start, *of_parts, zero, zero)
