"""Sequential loops as TIR: For, Pipelined, While and the ways out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.lanes import NotVectorisable
from tilec.backends.cpu.emit.statements import emit, emit_block, loop
from tilec.ir.nodes import Bind, Block, Break, Continue, For, Pipelined, While, walk
from tilec.lowering.emission.storage import lanes_of
from tilec.lowering.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(For)
def _emit_for(stmt: For, ctx: LaneContext) -> tirx.Stmt | None:
    step = int_value(stmt.step)
    dtype = dtype_of(stmt.var)
    zero = tirx.const(0, dtype)
    if step == 1:
        kind = tirx.ForKind.UNROLLED if stmt.kind == "unroll" and _is_short(stmt) else tirx.ForKind.SERIAL
        return _counted(stmt.var, stmt.start, stmt.stop, stmt.body, kind, ctx)
    distance = stmt.stop - stmt.start if step is None or step > 0 else stmt.start - stmt.stop
    size = stmt.step if step is None or step > 0 else tirx.const(-step, dtype)
    count = tirx.max(tirx.floordiv(distance + size - 1, size), zero)
    trip = tirx.Var(f"{stmt.var.name}_trip", dtype)
    body = (Bind(stmt.var, stmt.start + trip * stmt.step), *stmt.body)
    return _counted(trip, zero, count, body, tirx.ForKind.SERIAL, ctx)


_UNROLL_LIMIT = 16


def _is_short(stmt: For) -> bool:
    start, stop = int_value(stmt.start), int_value(stmt.stop)
    leaves = any(isinstance(inner, (Break, Continue)) for inner in walk(stmt.body))
    return start is not None and stop is not None and stop - start <= _UNROLL_LIMIT and not leaves


@emit.register(Pipelined)
def _emit_pipelined(stmt: Pipelined, ctx: LaneContext) -> tirx.Stmt | None:
    return _counted(stmt.var, stmt.start, stmt.stop, stmt.body, tirx.ForKind.SERIAL, ctx)


def _counted(var: Var, start: Expr, stop: Expr, body: Block, kind: int, ctx: LaneContext) -> tirx.Stmt | None:
    low, high = ctx.value(start), ctx.value(stop)
    if lanes_of(low) > 1 or lanes_of(high) > 1:
        raise NotVectorisable(
            "the trips of an inner loop differ between lanes", "give the inner loop bounds that all share"
        )
    ctx.facts.bind_range(var, start, stop)
    with ctx.scope():
        new = ctx.define(var)
        inner = emit_block(body, ctx)
    return (
        None if inner is None else loop(ctx, new, low, ctx.facts.analyzer.simplify(high - low), inner, kind)
    )


@emit.register(While)
def _emit_while(stmt: While, ctx: LaneContext) -> tirx.Stmt | None:
    cond = ctx.value(stmt.cond)
    if lanes_of(cond) > 1:
        raise NotVectorisable(
            "the trips of a while loop differ between lanes", "use a loop with bounds that all share"
        )
    body = emit_block(stmt.body, ctx)
    return tirx.While(cond, body if body is not None else tirx.Evaluate(tirx.const(0)))


@emit.register(Break)
def _emit_break(stmt: Break, ctx: LaneContext) -> tirx.Stmt | None:
    return tirx.Evaluate(tirx.break_loop())


@emit.register(Continue)
def _emit_continue(stmt: Continue, ctx: LaneContext) -> tirx.Stmt | None:
    return tirx.Evaluate(tirx.continue_loop())
