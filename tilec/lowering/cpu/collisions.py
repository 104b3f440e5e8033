"""Lanes that update one and the same element, which has to happen one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import sym

from tilec.ir.nodes import Alloc, Block, Store, walk
from tilec.lowering.cpu.accumulations import dependents
from tilec.lowering.cpu.context import Context, NotVectorisable
from tilec.lowering.cpu.uses import expressions
from tilec.lowering.exprs import int_value, loads, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def check_apart(var: Var, body: Block, ctx: Context) -> None:
    """NotVectorisable where iterations over ``var`` may both read and write one element at indices that vary
    with ``var``. Elements that all iterations share are a matter of accumulators."""
    moving = dependents(body, var)
    own = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc)}
    read = {load.source for stmt in walk(body) for expr in expressions(stmt) for load in loads(expr)}
    for stmt in walk(body):
        if not isinstance(stmt, Store) or stmt.buffer in own or stmt.buffer not in read:
            continue
        indices = [ctx.facts.inline(index) for index in stmt.indices]
        if any(uses(index, moving) for index in indices) and not _is_apart(indices, var, moving):
            raise NotVectorisable(f"lanes may meet in one element of {stmt.buffer.name}")


def _is_apart(indices: Sequence[Expr], var: Var, moving: tuple[Var, ...]) -> bool:
    """Whether some index moves with ``var`` and with nothing else that does: never back to an element."""
    for index in indices:
        linear = sym.detect_linear_equation(index, [var])
        if linear and int_value(linear[0]) and not uses(linear[1], moving):
            return True
    return False
