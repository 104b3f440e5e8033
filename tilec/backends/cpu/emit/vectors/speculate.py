"""Which expressions and statements may run for a lane whose condition is false."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilec.ir.exprs import loads
from tilec.ir.nodes import Bind, Block, If, Stmt, Store, is_global, walk
from tilec.ir.traits import expressions
from tilec.lowering.emission.access import open_bounds

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


def is_speculable(exprs: Iterable[Expr], ctx: LaneContext) -> bool:
    """Whether every element read in ``exprs`` exists whatever the conditions around it are."""
    return all(_exists(load.source, tuple(load.indices), ctx) for expr in exprs for load in loads(expr))


def _exists(buffer: Var, indices: Sequence[Expr], ctx: LaneContext) -> bool:
    if buffer not in ctx.storages:
        return False
    return open_bounds(buffer, indices, ctx) == []


def takes_masks(block: Block) -> bool:
    """Whether ``block`` can run for all lanes, its stores blended or by masks, if what it reads has a vector
    form: it only computes and writes elements."""
    return all(isinstance(stmt, (Store, Bind, If)) for stmt in walk(block))


def is_predicable(block: Block, ctx: LaneContext) -> bool:
    """Whether ``block`` can run so with no more than blends: it writes tiles alone, and every element that it
    names exists in all lanes."""
    return takes_masks(block) and all(_is_everywhere(stmt, ctx) for stmt in walk(block))


def _is_everywhere(stmt: Stmt, ctx: LaneContext) -> bool:
    if isinstance(stmt, Store) and is_global(stmt.buffer):
        return False
    if isinstance(stmt, Store) and stmt not in ctx.accumulators:
        return _exists(stmt.buffer, stmt.indices, ctx) and is_speculable(expressions(stmt), ctx)
    return is_speculable(expressions(stmt), ctx)
