"""Loops around a loop that do nothing but repeat it are one loop with it: products stay under way from one
trip of theirs to the next, where those of a loop that ends are waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.exprs import dtype_of, int_value, loads
from tilec.ir.nodes import Bind, Block, For, Stmt, children, walk, with_children
from tilec.ir.traits import mentioned

if TYPE_CHECKING:
    from tvm.ir import Expr


def joined(block: Block) -> Block:
    """A block with its loops joined."""
    inside = (with_children(stmt, [joined(inner) for inner in children(stmt)]) for stmt in block)
    return tuple(map(_joined, inside))


def _joined(stmt: Stmt) -> Stmt:
    """A loop without the one inside, where that is all that it repeats and neither counts for anything."""
    if not isinstance(stmt, For) or not _is_plain(stmt):
        return stmt
    *names, inner = stmt.body
    if not isinstance(inner, For) or not _is_plain(inner) or not all(isinstance(n, Bind) for n in names):
        return stmt
    own = {stmt.var, inner.var, *(name.var for name in names if isinstance(name, Bind))}
    if own & {var for part in walk(inner.body) for var in mentioned(part)} or own & mentioned(inner) - {
        inner.var
    }:
        return stmt
    if any(True for bound in (inner.start, inner.stop) for _ in loads(bound)):
        return stmt
    zero = tirx.const(0, dtype_of(inner.var))
    trips = sym.Analyzer().simplify(_trips(stmt) * tirx.max(_trips(inner), zero))
    return replace(inner, start=zero, stop=trips)


def _trips(loop: For) -> Expr:
    return loop.stop - loop.start


def _is_plain(loop: For) -> bool:
    return loop.kind == "serial" and int_value(loop.step) == 1 and dtype_of(loop.var) == "int32"
