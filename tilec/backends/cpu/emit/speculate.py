"""Which expressions and statements may run for a lane whose condition is false."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.ir.exprs import loads
from tilec.ir.nodes import Bind, Block, If, Store
from tilec.lowering.emission.access import open_bounds

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


def is_speculable(exprs: Sequence[Expr], ctx: LaneContext) -> bool:
    """Whether every element read in ``exprs`` exists whatever the conditions around it are."""
    return all(_exists(load.source, tuple(load.indices), ctx) for expr in exprs for load in loads(expr))


def _exists(buffer: Var, indices: Sequence[Expr], ctx: LaneContext) -> bool:
    if buffer not in ctx.storages:
        return False
    return open_bounds(buffer, indices, ctx) == []


def takes_masks(block: Block) -> bool:
    """Whether ``block`` can run for all lanes with its stores blended, if what it reads has a vector form: it
    only computes and writes tiles, as a predicable one does."""
    return all(_takes_masks(stmt) for stmt in block)


def _takes_masks(stmt: object) -> bool:
    if isinstance(stmt, If):
        return takes_masks(stmt.then) and takes_masks(stmt.orelse)
    if isinstance(stmt, Store):
        return not stmt.buffer.scope().startswith("global")
    return isinstance(stmt, Bind)


def is_predicable(block: Block, ctx: LaneContext) -> bool:
    """Whether ``block`` can run for all lanes with its stores blended: it only computes and writes tiles.
    A global buffer is not written back, since another block may be writing there."""
    return all(_is_predicable_stmt(stmt, ctx) for stmt in block)


def _is_predicable_stmt(stmt: object, ctx: LaneContext) -> bool:
    if isinstance(stmt, Bind):
        return is_speculable([stmt.value], ctx)
    if isinstance(stmt, If):
        inside = is_predicable(stmt.then, ctx) and is_predicable(stmt.orelse, ctx)
        return inside and is_speculable([stmt.cond], ctx)
    if not isinstance(stmt, Store) or stmt.buffer.scope().startswith("global"):
        return False
    if stmt in ctx.accumulators:
        return is_speculable([stmt.value, *stmt.indices], ctx)
    exists = _exists(stmt.buffer, stmt.indices, ctx)
    return exists and is_speculable([stmt.value, *stmt.indices], ctx)
