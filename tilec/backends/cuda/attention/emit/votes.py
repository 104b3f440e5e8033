"""Device code of votes: a lane tests every 32nd value, and the warp asks whether any lane found something."""

from __future__ import annotations

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import Vote
from tilec.backends.cuda.device import exchange
from tilec.backends.cuda.emit.statements import emit, store_element
from tilec.ir.exprs import cast_to, dtype_of


@emit.register(Vote)
def _emit_vote(stmt: Vote, ctx: AttentionContext) -> tirx.Stmt | None:
    lane, found = ctx.lane, tirx.const(0, "int32")
    assert lane is not None
    for first in range(0, stmt.extent, WARP):
        value = lane + first
        if first + WARP > stmt.extent:  # lanes behind the last value test that one, too
            value = tirx.Min(value, tirx.const(stmt.extent - 1, "int32"))
        with ctx.scope({stmt.var: cast_to(value, dtype_of(stmt.var))}):
            ctx.facts.bind_range(stmt.var, 0, stmt.extent)
            found = found | tirx.Cast("int32", ctx.value(stmt.tested))
    any_lane = exchange.vote("any", "int32").call(tirx.const(exchange.ALL_LANES, "uint32"), found)
    return store_element(stmt.flag, (tirx.const(0, "int32"),), any_lane, ctx)
