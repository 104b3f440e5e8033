"""Blocks that store nothing compute nothing.

for k in trips: ...;  if row + i < length: store    ->    for k in (trips where row < length, else none): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import all_of, conjuncts, dtype_of, inlined, int_value, linear_in, loads, substitute, uses
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Stmt,
    Store,
    is_global,
    walk,
)
from tilec.ir.traits import written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr

_COMPUTE = (Alloc, Assume, Bind, Copy, Fill, For, Gemm, If, Parallel, Pipelined, Reduce, Store)
_BELOW, _ABOVE = (tirx.LT, tirx.LE), (tirx.GT, tirx.GE)


class SkipIdleBlocks(LaunchPass):
    """In: launches that write tensors in loops over elements alone, each under a condition on its row, whose
    bound is read of a tensor (sequences of their own lengths), and whose trips follow from such values, too.
    Out: loops with products have no trip in blocks in which no element is stored."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars or not _only_stores(launch.body):
            return launch
        values = values_of(launch.body)
        active = _active(launch.body, values)
        if active is None:
            return launch
        return replace(launch, body=tuple(_guarded(launch.body, active, values)))


def _only_stores(body: Block) -> bool:
    """Whether all that others see of a block are stores in loops over elements of its top."""
    top = {inner for stmt in body if isinstance(stmt, Parallel) for inner in walk(stmt.body)}
    return all(
        isinstance(stmt, _COMPUTE) and (stmt in top or not any(map(is_global, written(stmt))))
        for stmt in walk(body)
    )


def _active(body: Block, values: Mapping[Var, Expr]) -> Expr | None:
    """What holds where a block stores something; None where that is always or not known."""
    made: Expr | None = None
    for loop in body:
        if not isinstance(loop, Parallel) or not _stores(loop):
            continue
        cond, _ = conditioned(loop.body)
        parts = [] if cond is None else list(_of_blocks(cond, loop))
        if not any(_is_read(part, values) for part in parts):
            return None
        made = all_of(parts) if made is None else tirx.Or(made, all_of(parts))
    return made


def _stores(loop: Parallel) -> bool:
    return any(is_global(name) for stmt in walk(loop.body) for name in written(stmt))


def _of_blocks(cond: Expr, loop: Parallel) -> Iterator[Expr]:
    """What has to hold for a condition to hold anywhere in a loop, of its parts that are linear."""
    for part in conjuncts(cond):
        if next(loads(part), None) is not None:
            continue
        if not uses(part, loop.vars):
            yield part
        elif isinstance(part, (*_BELOW, *_ABOVE)):
            yield from _at_best(part, loop)


def _at_best(part: Expr, loop: Parallel) -> Iterator[Expr]:
    """A comparison at the elements of a loop where it holds first."""
    factors = linear_in(part.a - part.b, loop.vars)
    low = isinstance(part, _BELOW)
    if not dtype_of(part.a).startswith("int"):
        return
    ends: dict[Var, Expr] = {}
    for var, extent, factor in zip(loop.vars, loop.extents, factors, strict=False):
        number, size = int_value(factor), int_value(extent)
        if number is None or size is None:
            return
        ends[var] = tirx.const(0 if (number >= 0) is low else size - 1, dtype_of(var))
    if ends:
        yield substitute(part, ends)


def _is_read(expr: Expr, values: Mapping[Var, Expr]) -> bool:
    """Whether a value follows from one that is read of a tensor."""
    return next(loads(inlined(expr, values)), None) is not None


def _guarded(body: Block, active: Expr, values: Mapping[Var, Expr]) -> Iterator[Stmt]:
    """``body`` with loops that have their trips where ``active`` holds."""
    bound: set[Var] = set()
    for stmt in body:
        known = not any(var in values and var not in bound for var in undefined_vars(active))
        yield _with_trips(stmt, active, values) if known else stmt
        if isinstance(stmt, Bind):
            bound.add(stmt.var)


def _with_trips(stmt: Stmt, active: Expr, values: Mapping[Var, Expr]) -> Stmt:
    if not isinstance(stmt, (For, Pipelined)) or not _is_read(stmt.stop, values):
        return stmt
    if not any(isinstance(inner, Gemm) for inner in walk(stmt.body)):
        return stmt
    return replace(stmt, stop=tirx.if_then_else(active, stmt.stop, stmt.start))
