"""What stands before the loop of a launch: scalar code that both roles run, and the branch around the rest.

A block of a grouped product looks its expert and its rows up, and has nothing to do where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Bind, Block, Fill, For, If, Launch, Pipelined, Stmt, Store, walk

if TYPE_CHECKING:
    from tvm.ir import Expr


def without_guard(launch: Launch) -> tuple[Launch, Expr | None]:
    """``launch`` with the statements of a branch that ends it and holds its loop in place of the branch, and
    the branch's condition; None where there is no such branch."""
    last = launch.body[-1] if launch.body else None
    if not isinstance(last, If) or last.orelse:
        return launch, None
    if not any(isinstance(stmt, Pipelined) for stmt in last.then):
        return launch, None
    return replace(launch, body=(*launch.body[:-1], *last.then)), last.cond


def is_scalar(stmt: Stmt) -> bool:
    """Whether a statement works on names and mutable scalars alone, so that each thread may run it."""
    if isinstance(stmt, Alloc):
        return bool(stmt.buffer.scope() == "local.var")
    if isinstance(stmt, Store):
        return bool(stmt.buffer.scope() == "local.var")
    if isinstance(stmt, For):
        return int_value(stmt.step) == 1 and all(map(is_scalar, stmt.body))
    if isinstance(stmt, If):
        return all(map(is_scalar, (*stmt.then, *stmt.orelse)))
    return isinstance(stmt, Bind)


def head_of(before: Block) -> tuple[Stmt, ...]:
    """The scalar code of what stands before a loop."""
    return tuple(stmt for stmt in before if is_scalar(stmt))


def foreign_to_head(before: Block) -> Stmt | None:
    """A statement before a loop that is neither scalar code nor storage nor the start of a sum."""
    foreign = (stmt for stmt in before if not is_scalar(stmt) and not isinstance(stmt, (Alloc, Fill)))
    return next(foreign, None)


def is_straight(head: Sequence[Stmt]) -> bool:
    """Whether a head is names alone."""
    return all(isinstance(stmt, Bind) for stmt in walk(tuple(head)))
