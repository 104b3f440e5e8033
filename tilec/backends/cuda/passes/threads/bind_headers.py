"""Loops whose bounds are elements of fragments: every thread has to know them before the first trip."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, loads
from tilec.ir.nodes import (
    Bind,
    Block,
    Break,
    For,
    If,
    Launch,
    Pipelined,
    Stmt,
    While,
    children,
    with_children,
)
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr


class BindHeaders(LaunchPass):
    """In: loops of any kind. Out: no header of For, Pipelined or While reads an element of a fragment: bounds
    are names bound in front, the condition of a While is tested at the start of each trip."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with plain headers."""
        return replace(launch, body=_block(launch.body))


def _block(block: Block) -> Block:
    return tuple(new for stmt in block for new in _stmt(stmt))


def _stmt(stmt: Stmt) -> Block:
    inner = children(stmt)
    stmt = with_children(stmt, [_block(part) for part in inner]) if inner else stmt
    if isinstance(stmt, (For, Pipelined)):
        return _bound(stmt, ("start", "stop", "step") if isinstance(stmt, For) else ("start", "stop"))
    if isinstance(stmt, While) and _reads_fragments(stmt.cond):
        leave = If(tirx.Not(stmt.cond), (Break(loc=stmt.loc),), loc=stmt.loc)
        return (replace(stmt, cond=tirx.const(True, "bool"), body=(leave, *stmt.body)),)
    return (stmt,)


def _bound(loop: For | Pipelined, names: tuple[str, ...]) -> Block:
    """The loop behind names for those of its bounds that read fragments."""
    binds = [
        Bind(tirx.Var(name, dtype_of(getattr(loop, name))), getattr(loop, name), loc=loop.loc)
        for name in names
        if _reads_fragments(getattr(loop, name))
    ]
    return *binds, replace(loop, **{str(bind.var.name): bind.var for bind in binds})


def _reads_fragments(expr: Expr) -> bool:
    return any(load.source.scope() == "local.fragment" for load in loads(expr))
