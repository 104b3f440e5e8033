"""A loop of boxes that fill a tile part by part, such as pages, as one box of each lane of the warp that
loads: all look up their places at once, before there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.nodes import BoxLoad, EachLane
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import dtype_of, loads
from tilec.ir.nodes import Alloc, Bind, Block, For, Stmt, Store, is_global
from tilec.lowering.emission.statements import guarded


def by_lanes(loop: For) -> tuple[Block, Stmt]:
    """What looks up the places of a loop of BoxLoads, and their loads; nothing and the loop as it is where
    lanes are too few, or tables no tensors."""
    trips = known_trips(loop)
    names = [stmt for stmt in loop.body if isinstance(stmt, Bind)]
    found = [stmt for stmt in names if any(True for _ in loads(stmt.value))]
    tables = {load.source for stmt in found for load in loads(stmt.value)}
    if trips is None or not all(map(is_global, tables)):
        return (), loop
    count = len(trips)
    if not 1 < count <= WARP:
        return (), loop
    zero = tirx.const(0, "int32")
    held = {
        stmt: tirx.decl_buffer((1,), dtype_of(stmt.var), name=f"{stmt.var.name}_held", scope="local.var")
        for stmt in found
    }
    room = [Alloc(buffer, init=tirx.const(0, str(buffer.dtype))) for buffer in held.values()]
    kept = [Store(buffer, (zero,), stmt.var) for stmt, buffer in held.items()]
    ahead = _lanes(loop, count, (*names, *kept))
    known = [
        replace(stmt, value=tirx.BufferLoad(held[stmt], [zero])) if stmt in held else stmt for stmt in names
    ]
    boxes = [replace(stmt, alone=True) for stmt in loop.body if isinstance(stmt, BoxLoad)]
    return (*room, ahead) if held else (), _lanes(loop, count, (*known, *boxes))


def _lanes(loop: For, count: int, body: Sequence[Stmt]) -> EachLane:
    lane = tirx.Var("lane", dtype_of(loop.var))
    part = Bind(loop.var, loop.start + lane * loop.step)
    return EachLane(lane, count, (part, *body), loc=loop.loc)


@emit.register(EachLane)
def _emit_lanes(stmt: EachLane, ctx: DeviceContext) -> tirx.Stmt | None:
    assert ctx.thread is not None
    with ctx.scope():
        ctx.facts.bind_range(stmt.var, 0, stmt.count)
        ctx.env[stmt.var] = ctx.thread
        body = ctx.block(stmt.body)
    test = tirx.LT(ctx.thread, tirx.const(stmt.count, "int32"))
    return None if body is None else guarded(body, [test])
