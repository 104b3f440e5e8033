"""The verifier's rules of thread-level statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.ir.analysis.threads import fragments
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import threads
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from tilec.ir.nodes import Stmt
    from tilec.ir.rules.scope import Scope


def _sync(scope: Scope, stmt: threads.Sync) -> None:
    scope.need(stmt.kind in threads.SYNC_KINDS, f"barrier of kind {stmt.kind!r}")
    named = (stmt.barrier is None) == (stmt.count is None)
    scope.need(named, "a named barrier has a number and a count of threads")


def _return(scope: Scope, stmt: threads.Return) -> None:
    """Nothing to check."""


def _lane(scope: Scope, stmt: threads.Lane) -> None:
    kind, count = stmt.kind, len(stmt.operands)
    scope.need(kind in threads.LANE_KINDS, f"lane statement {kind!r}")
    wanted = 2 if kind in threads.SHUFFLES else 0 if kind == "active" else 1
    scope.need(count == wanted, f"lane_{kind} takes {wanted} operands, got {count}")
    for operand in stmt.operands:
        scope.expr(operand)
    if kind in threads.BLOCK_VOTES or kind in ("any", "all", "ballot"):
        scope.condition(stmt.operands[0])
    if kind in threads.SHUFFLES:
        scope.index(stmt.operands[1])
    known = 1 <= stmt.width <= threads.WARP and stmt.width & (stmt.width - 1) == 0
    scope.need(known, f"groups of {stmt.width} lanes")
    if stmt.mask is not None:
        scope.value(stmt.mask, "uint32", "the mask of lanes")
    dtype = threads.lane_dtype(kind, tuple(dtype_of(operand) for operand in stmt.operands))
    found = dtype_of(stmt.var)
    scope.need(found == dtype, f"{stmt.var.name} is {found}, lane_{kind} gives {dtype}")
    scope.define((stmt.var,))


def _reduce(scope: Scope, stmt: threads.ThreadReduce) -> None:
    scope.access(stmt.buffer, stmt.indices)
    dtype = str(stmt.buffer.dtype)
    for part in (stmt.identity, stmt.value):
        scope.value(part, dtype, str(stmt.buffer.name))
    scope.condition(stmt.cond)
    known = bool(stmt.axes) and set(stmt.axes) <= {0, 1, 2}
    scope.need(known, f"a reduction over the thread axes {stmt.axes}")
    outer = set(scope.defined)
    scope.define(stmt.vars)
    scope.value(stmt.combine, dtype, "the combined value")
    scope.defined = outer


def _mma(scope: Scope, stmt: threads.LaneMma) -> None:
    scope.access(stmt.buffer, stmt.indices)
    known = fragments.instruction_types(stmt) is not None
    scope.need(known, f"{stmt.instruction} {stmt.shape} of {', '.join(fragments.dtypes(stmt))}")
    for part in expressions(stmt):
        scope.expr(part)


def _load(scope: Scope, stmt: threads.LaneLoad) -> None:
    scope.access(stmt.buffer, stmt.indices)
    for part in (stmt.source, stmt.lane):
        scope.expr(part)
    scope.need(stmt.count in (1, 2, 4), f"lane_load of {stmt.count} matrices")


RULES: dict[type[Stmt], Callable[[Scope, Any], None]] = {
    threads.Sync: _sync,
    threads.Return: _return,
    threads.Lane: _lane,
    threads.ThreadReduce: _reduce,
    threads.LaneMma: _mma,
    threads.LaneLoad: _load,
}
