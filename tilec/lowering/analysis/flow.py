"""Which statements see what a buffer holds: reads that are reached, statements that overwrite all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    LOOPS,
    Block,
    Copy,
    Fill,
    Gemm,
    If,
    Parallel,
    Reduce,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.ir.traits import read, written
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import touches
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.emission.loops import is_left_early

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Var


def reads(stmt: Stmt, buffer: Var) -> bool:
    """Whether a statement or one inside reads ``buffer``."""
    return any(_reads_itself(inner, buffer) for inner in walk((stmt,)))


def _reads_itself(stmt: Stmt, buffer: Var) -> bool:
    if isinstance(stmt, Gemm) and int_value(stmt.clear) == 1 and buffer.same_as(stmt.c.buffer):
        return any(buffer.same_as(operand.buffer) for operand in (stmt.a, stmt.b))
    return any(buffer.same_as(name) for name in read(stmt))


def is_read_next(block: Block, buffer: Var) -> bool:
    """Whether a statement of ``block`` may read what ``buffer`` holds before the block."""
    for stmt in block:
        if _is_read_in(stmt, buffer):
            return True
        if overwrites(stmt, buffer):
            return False
    return False


def _is_read_in(stmt: Stmt, buffer: Var) -> bool:
    if not reads(stmt, buffer):
        return False
    if not isinstance(stmt, (If, *LOOPS)):
        return True
    return _reads_itself(stmt, buffer) or any(is_read_next(inner, buffer) for inner in children(stmt))


def begins_anew(buffer: Var, block: Iterable[Stmt]) -> bool:
    """Whether the first statement of a block that names ``buffer`` overwrites it."""
    user = next((stmt for stmt in block if touches(stmt, buffer)), None)
    if isinstance(user, Reduce):
        return is_whole(user.dst) and not reads(user, buffer)
    return user is not None and overwrites(user, buffer)


def overwrites(stmt: Stmt, buffer: Var) -> bool:
    """Whether a statement writes every element of ``buffer`` whatever it held before."""
    if reads(stmt, buffer):
        return False
    if isinstance(stmt, Parallel):
        stores = (inner for inner in stmt.body if isinstance(inner, Store) and inner.buffer.same_as(buffer))
        return any(stores_each(store, stmt) for store in stores) and not is_left_early(stmt.body)
    if not any(buffer.same_as(name) for name in written(stmt)):
        return False
    if isinstance(stmt, (Copy, Fill)):
        return is_whole(stmt.dst)
    if isinstance(stmt, Gemm):
        return is_whole(stmt.c)
    single = all(int_value(extent) == 1 for extent in buffer.shape)
    return isinstance(stmt, Store) and single and all(int_value(index) == 0 for index in stmt.indices)
