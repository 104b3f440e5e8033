"""TIR of `AskAhead`: a prefetch for each cache line that the lanes of a vector lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.backends.cpu.emit.vectors.pieces import places_of
from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.products.tir import CACHE_LINE, prefetch, sequence
from tilec.ir.exprs import dtype_of
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(AskAhead)
def _emit_ask_ahead(stmt: AskAhead, ctx: LaneContext) -> tirx.Stmt | None:
    """Nothing for single elements, which are the end of a row, or where the row at hand is known not to be
    there; no test of that is made for this alone."""
    storage = ctx.storage(stmt.buffer)
    absent = open_bounds(stmt.buffer, stmt.indices, ctx) is None
    places = None if absent or ctx.lanes is None else places_of(storage, stmt.ahead, ctx)
    if places is None or storage.layout is not None or max(places) == 0:
        return None
    first = storage.offset([in_first_lane(index, ctx) for index in stmt.ahead])
    line = max(1, CACHE_LINE // element_bytes(storage.dtype))
    starts = (_address(stmt, first + start, ctx) for start in range(0, max(places) + 1, line))
    return sequence(*(prefetch(start, near=stmt.near, write=stmt.write) for start in starts))


def _address(stmt: AskAhead, at: Expr, ctx: LaneContext) -> Expr:
    """Of the element at this offset; of the tensor's first one where stores to it pass the caches by."""
    if stmt.write and stmt.buffer in ctx.streams:
        at = tirx.Select(ctx.streams[stmt.buffer], tirx.const(0, dtype_of(at)), at)
    return tirx.address_of(tirx.BufferLoad(ctx.storage(stmt.buffer).data, [at]))
