"""Conditions that split the range of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Atomic, Block, Store, walk
from tilec.lowering.analysis.conditions import gap

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


def written_buffers(body: Block) -> set[Var]:
    """The buffers that ``body`` stores to."""
    return {stmt.buffer for stmt in walk(body) if isinstance(stmt, (Store, Atomic))}


def is_invariant(
    expr: Expr, inner: Sequence[Var], written: set[Var], ctx: LaneContext, loop_var: Var | None = None
) -> bool:
    """Whether ``expr`` keeps its value over the loops of ``inner``: it uses none of their variables, nothing
    that the body writes or defines. ``loop_var`` is a variable that it may use besides the defined ones."""
    expr = ctx.facts.inline(expr)
    if uses(expr, inner) or any(load.source in written for load in loads(expr)):
        return False
    names = (node for node in walk_expr(expr) if isinstance(node, Var))
    return all(
        name in ctx.env or (loop_var is not None and name.same_as(loop_var)) for name in names
    ) and all(load.source in ctx.storages for load in loads(expr))


def split_point(cond: Expr, var: Var) -> tuple[Expr, bool] | None:
    """(bound, True) if ``cond`` holds exactly for ``var`` < bound, (bound, False) if for ``var`` >= bound;
    None if it is no such condition."""
    positive = gap(cond)
    if positive is None or not uses(positive, (var,)):
        return None
    linear = linear_in(positive, [var])
    factor = int_value(linear[0]) if linear else None
    if not factor:
        return None
    rest = linear[1]
    if factor < 0:
        return _ceil_quotient(rest, -factor), True
    zero = tirx.const(0, dtype_of(rest))
    return _ceil_quotient(zero - rest + 1, factor), False


def _ceil_quotient(value: Expr, divisor: int) -> Expr:
    return value if divisor == 1 else tirx.floordiv(value + (divisor - 1), divisor)
