"""TIR of `AskAhead`: a prefetch for the lanes of a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.access import flat_index
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.products.tir import prefetch
from tilec.lowering.emission.access import open_bounds

if TYPE_CHECKING:
    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(AskAhead)
def _emit_ask_ahead(stmt: AskAhead, ctx: LaneContext) -> tirx.Stmt | None:
    """Nothing for single elements, which are the end of a row, or where the row at hand is known not to be
    there; no test of that is made for this alone."""
    storage = ctx.storage(stmt.buffer)
    index = flat_index(storage, stmt.ahead, ctx)
    absent = open_bounds(stmt.buffer, stmt.indices, ctx) is None
    if absent or not isinstance(index, tirx.Ramp):
        return None
    place = tirx.address_of(tirx.BufferLoad(storage.data, [index.base]))
    return prefetch(place)
