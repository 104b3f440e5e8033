"""Parallel loops of any form become loops of constant extents over statements without `continue`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.threads import thread_count
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Bind, Block, For, If, Launch, Parallel, Stmt, children, with_children
from tilec.lowering.analysis.continues import without_continue
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr


class SplitLoops(LaunchPass):
    """In: Parallel with any extents, nested ones too. Out: Parallel with integer extents alone: a run-time
    extent is walked in chunks of the block's threads by a serial loop around, with its end tested inside;
    a Parallel inside another one is a serial loop; `continue` is an If around what follows. Loops without
    iterations are gone."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops split."""
        chunk = thread_count(launch)

        def block(body: Block) -> Block:
            return tuple(stmt_of(stmt) for stmt in body if not _is_empty(stmt))

        def stmt_of(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Parallel):
                return with_children(stmt, [block(inner) for inner in children(stmt)])
            body = without_continue(serial_inside(stmt.body))
            return _chunked(replace(stmt, body=body), chunk)

        return replace(launch, body=block(launch.body))


def _is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, Parallel) and any(int_value(extent) == 0 for extent in stmt.extents)


def serial_inside(body: Block) -> Block:
    """``body`` with every Parallel in it as serial loops."""
    return tuple(serial_loops(stmt) for stmt in body)


def serial_loops(stmt: Stmt) -> Stmt:
    """A statement with every Parallel in it, or that it is, as serial loops."""
    inner = with_children(stmt, [serial_inside(block) for block in children(stmt)])
    if not isinstance(inner, Parallel):
        return inner
    body: Block = without_continue(inner.body)
    for var, extent in reversed(list(zip(inner.vars, inner.extents, strict=True))):
        zero, one = tirx.const(0, dtype_of(var)), tirx.const(1, dtype_of(var))
        stop = tirx.const(extent, dtype_of(var)) if isinstance(extent, int) else extent
        body = (For("serial", var, zero, stop, one, body, loc=inner.loc),)
    return body[0]


def _chunked(loop: Parallel, chunk: int) -> Stmt:
    """The loop with its run-time extents cut into chunks."""
    axis = next((at for at, extent in enumerate(loop.extents) if int_value(extent) is None), None)
    if axis is None:
        return loop
    var, extent = loop.vars[axis], loop.extents[axis]
    dtype = dtype_of(var)
    size = tirx.const(chunk if axis == len(loop.vars) - 1 else 1, dtype)
    outer, inner = tirx.Var(f"{var.name}_chunk", dtype), tirx.Var(f"{var.name}_in", dtype)
    body = (Bind(var, outer * size + inner), If(_below(var, extent), loop.body))
    part = replace(
        loop,
        vars=(*loop.vars[:axis], inner, *loop.vars[axis + 1 :]),
        extents=(*loop.extents[:axis], int(size.value), *loop.extents[axis + 1 :]),
        body=body,
    )
    count = tirx.floordiv(extent + size - 1, size)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    return For("serial", outer, zero, count, one, (_chunked(part, chunk),), loc=loop.loc)


def _below(var: Expr, extent: Expr | int) -> Expr:
    return tirx.LT(var, tirx.const(extent, dtype_of(var)) if isinstance(extent, int) else extent)
