"""Parallel loops of any form become loops of constant extents over statements without `continue`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST, divides
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.ir.exprs import as_expr, dtype_of, int_value
from tilec.ir.nodes import (
    Bind,
    Block,
    If,
    Kernel,
    Parallel,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.ir.serial import serial_loop, serial_nest
from tilec.ir.traits import buffers
from tilec.lowering.analysis.continues import without_continue
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target


class SplitLoops(Pass):
    """In: Parallel with any extents, nested ones too. Out: Parallel with integer extents alone: a run-time
    extent is walked in chunks by a serial loop around, with its end tested inside; a chunk has an iteration
    for each of the block's threads or, where the last extent is a multiple of that, a vector of 16 bytes. A
    Parallel inside another one is a serial loop; `continue` is an If around what follows. Loops without
    iterations are gone."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loops split."""
        return rewrite_launches(kernel, lambda launch: _Split(kernel, launch).run())


class _Split(ScopedRewrite):
    """The loops of one launch."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Loops over elements are split."""
        if not isinstance(stmt, Parallel):
            return super().stmt(stmt)
        if _is_empty(stmt):
            return []
        body = without_continue(serial_inside(stmt.body))
        return [_chunked(replace(stmt, body=body), thread_count(self.launch) * self._width(stmt))]

    def _width(self, loop: Parallel) -> int:
        """How many neighbours a thread may take at once: as many as 16 bytes have of what the loop moves,
        where the last extent is a run-time multiple of it; else 1."""
        last = loop.extents[-1]
        if isinstance(last, int) or int_value(last) is not None:
            return 1
        sizes = [element_bytes(str(buffer.dtype)) for stmt in walk(loop.body) for buffer in buffers(stmt)
                 if buffer.scope().startswith(("global", "shared"))]  # fmt: skip
        width = WIDEST // max(1, min(sizes, default=WIDEST))
        return width if divides(width, last, self.facts) else 1


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
    return serial_nest(inner.vars, inner.extents, without_continue(inner.body), inner.loc)[0]


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
    return serial_loop(outer, count, (_chunked(part, chunk),), loop.loc)


def _below(var: Expr, extent: Expr | int) -> Expr:
    return tirx.LT(var, as_expr(extent, dtype_of(var)))
