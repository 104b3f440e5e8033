"""Sequential loops and the ways out of them, on every target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value, loads
from tilec.ir.nodes import Bind, Block, Break, Continue, For, Pipelined, Stmt, While, walk

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.emission.context import Context


def is_left_early(body: Block) -> bool:
    """Whether a trip of a loop over ``body`` may end before its end."""
    return any(isinstance(stmt, (Break, Continue)) for stmt in walk(body))


def unit_steps(stmt: For) -> For:
    """The loop itself where its steps are 1, else a serial one that counts its trips."""
    step, dtype = int_value(stmt.step), dtype_of(stmt.var)
    if step == 1:
        return stmt
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    forward = step is None or step > 0
    distance = stmt.stop - stmt.start if forward else stmt.start - stmt.stop
    size = stmt.step if forward else tirx.const(-(step or 1), dtype)
    count = tirx.max(tirx.floordiv(distance + size - 1, size), zero)
    trip = tirx.Var(f"{stmt.var.name}_trip", dtype)
    body = (Bind(stmt.var, stmt.start + trip * stmt.step), *stmt.body)
    return replace(stmt, kind="serial", var=trip, start=zero, stop=count, step=one, body=body)


def read_once(stmt: For) -> tuple[list[Bind], For]:
    """The loop behind names for its start and its step where these read memory and every trip computes its
    index of them: the trip before may have written there."""
    if int_value(stmt.step) == 1:
        return [], stmt
    parts = {"start": stmt.start, "step": stmt.step}
    read = {part: value for part, value in parts.items() if next(loads(value), None) is not None}
    names = {part: tirx.Var(f"{stmt.var.name}_{part}", dtype_of(value)) for part, value in read.items()}
    return [Bind(names[part], value, loc=stmt.loc) for part, value in read.items()], replace(stmt, **names)


def counted(
    var: Var, start: Expr, stop: Expr, body: Block, kind: int, ctx: Context, **annotations: bool
) -> tirx.Stmt | None:
    """A loop whose bounds are read once, before the first trip. One of one trip that may be left early stays
    a loop: TVM's passes write the body of a For of one trip without it. One whose trips a call decides is
    serial: nothing but a number of trips can be written out."""
    remedy = "give the inner loop bounds that all share"
    low, high = (ctx.control_value(each, "trips of an inner loop", remedy) for each in (start, stop))
    ctx.facts.bind_range(var, start, stop)
    with ctx.scope():
        new = ctx.define(var)
        inner = ctx.block(body)
    if inner is None:
        return None
    extent = ctx.facts.analyzer.simplify(high - low)
    if int_value(extent) == 1 and is_left_early(body):
        return _single(new, low, inner)
    if kind == tirx.ForKind.UNROLLED and int_value(extent) is None:
        kind = tirx.ForKind.SERIAL
    return ctx.loop(new, low, extent, inner, kind, **annotations)


def _single(var: Var, start: Expr, body: tirx.Stmt) -> tirx.Stmt:
    """A loop of one trip."""
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    done = tirx.decl_buffer((1,), "int32", name="done", scope="local")
    trip = tirx.SeqStmt([tirx.Bind(var, start), tirx.BufferStore(done, one, [zero]), body])
    first = tirx.EQ(tirx.BufferLoad(done, [zero]), zero)
    loop = tirx.While(first, trip)
    return tirx.SeqStmt([tirx.AllocBuffer(done), tirx.BufferStore(done, zero, [zero]), loop])


def _emit_pipelined(stmt: Pipelined, ctx: Context) -> tirx.Stmt | None:
    return counted(stmt.var, stmt.start, stmt.stop, stmt.body, tirx.ForKind.SERIAL, ctx)


def _emit_while(stmt: While, ctx: Context) -> tirx.Stmt:
    cond = ctx.control_value(stmt.cond, "trips of a while loop", "use a loop with bounds that all share")
    body = ctx.block(stmt.body)
    return tirx.While(cond, body if body is not None else tirx.Evaluate(tirx.const(0)))


#: The code of what is the same for every family.
LOOPS: dict[type[Stmt], Callable[[Any, Context], tirx.Stmt | None]] = {
    Pipelined: _emit_pipelined,
    While: _emit_while,
    Break: lambda stmt, ctx: tirx.Evaluate(tirx.break_loop()),
    Continue: lambda stmt, ctx: tirx.Evaluate(tirx.continue_loop()),
}
