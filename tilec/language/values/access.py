"""Which buffers a kernel reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tilec.ir import nodes as ir
from tilec.ir.nodes.barriers import BulkLoad, ClusterCopy
from tilec.ir.nodes.threads import LANE_PRODUCTS, LaneMma, ThreadReduce

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def access(body: ir.Block, buffer: Var) -> str:
    """ "in", "out" or "inout": what the statements do with a buffer; "in" if they never touch it."""
    statements = list(ir.walk(body))
    reads = any(_has(buffer, read_by(stmt)) for stmt in statements)
    writes = any(_has(buffer, written_by(stmt)) for stmt in statements)
    if reads or not writes:
        return "inout" if writes else "in"
    return "out"


def _has(buffer: Var, buffers: Iterator[Any]) -> bool:
    return any(buffer.same_as(other) for other in buffers)


def written_by(stmt: ir.Stmt) -> Iterator[Any]:
    """The buffers that a statement writes itself, without the blocks inside it."""
    if isinstance(stmt, (ir.Store, ir.Atomic, ThreadReduce)):
        if getattr(stmt, "kind", "") != "load":
            yield stmt.buffer
    elif isinstance(stmt, (ir.Copy, ir.Fill, ir.Reduce, ir.Scan, BulkLoad, ClusterCopy)):
        yield stmt.dst.buffer
    elif isinstance(stmt, ir.PRODUCTS):
        yield stmt.c.buffer
    elif isinstance(stmt, LANE_PRODUCTS):
        yield stmt.buffer


def read_by(stmt: ir.Stmt) -> Iterator[Any]:
    """The buffers that a statement reads itself, without the blocks inside it."""
    from tilec.ir.exprs import loads

    if isinstance(stmt, ir.Atomic) and stmt.kind != "store":
        yield stmt.buffer
    if isinstance(stmt, (ir.Copy, ir.Reduce, ir.Scan, BulkLoad, ClusterCopy)):
        yield stmt.src.buffer
    if isinstance(stmt, ir.Reduce) and not stmt.clear:
        yield stmt.dst.buffer
    if isinstance(stmt, ir.Gemm):
        yield from (stmt.a.buffer, stmt.b.buffer, stmt.c.buffer)
    if isinstance(stmt, LaneMma):
        yield stmt.buffer
    if isinstance(stmt, ir.SparseGemm):
        yield from (stmt.a.buffer, stmt.e.buffer, stmt.b.buffer, stmt.c.buffer)
    for expr in expressions_of(stmt):
        yield from (load.source for load in loads(expr))


def expressions_of(stmt: ir.Stmt) -> Iterator[Expr]:
    """Every expression that a statement itself holds, those of its regions included."""
    from tilec.ir.traits import expressions

    return expressions(stmt)
