"""Loops over rows that may begin anywhere in memory, as vectors whose places are tested."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.accesses.ragged import Ragged, ragged_loops
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.nodes import RaggedLoop
from tilec.ir.exprs import dtype_of, substitute, transform, uses
from tilec.ir.nodes import Bind, Block, Kernel, Launch, Parallel, Stmt, Store, children, with_children
from tilec.ir.traits import expressions
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: The note of a launch that asks for what none of its loops can have.
_NONE = "phase = True has no effect: no loop over columns moves vectors that begin anywhere"


class ShiftColumns(Pass):
    """In: Parallel over neighbours in tensors that are not known to be whole vectors. Out: RaggedLoop of the
    same columns, shifted so that what it stores begins at vectors; fragments are indexed by places. Loops
    over fragments alone are the same in any order. With the key ``phase`` rows of any length, and their ends
    are cut off whole vectors."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its vectors."""
        return rewrite_launches(kernel, lambda launch: _shifted(kernel, launch))


def _shifted(kernel: Kernel, launch: Launch) -> Launch:
    found, cut = ragged_loops(kernel, launch), bool(launch.schedule.phase)
    if cut and not found:
        return replace(launch, notes=(*launch.notes, _NONE))

    def block(body: Block) -> Block:
        return tuple(map(stmt_of, body))

    def stmt_of(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Parallel):
            return _ragged(stmt, found[stmt], cut) if stmt in found else stmt
        return with_children(stmt, [block(inner) for inner in children(stmt)])

    return replace(launch, body=block(launch.body)) if found else launch


def _ragged(loop: Parallel, plan: Ragged, cut: bool) -> Parallel:
    *rows, column = loop.vars
    dtype = dtype_of(column)
    place = tirx.Var(f"{column.name}_place", dtype)
    body = tuple(_placed(stmt, column, place) for stmt in plan.body)
    if not any(uses(expr, (column,)) for stmt in body for expr in expressions(stmt)):
        return loop
    if plan.shift is None:
        return RaggedLoop(loop.vars, loop.extents, plan.body, loop.hints, plan.width, cut, loc=loop.loc)
    shift = tirx.Var(f"{column.name}_shift", "int32")
    by = shift if dtype == "int32" else tirx.Cast(dtype, shift)
    count, none = tirx.const(loop_extents(loop)[-1], dtype), tirx.const(0, dtype)
    names = (
        Bind(shift, plan.shift, loc=loop.loc),
        Bind(column, place - by + tirx.if_then_else(place < by, count, none), loc=loop.loc),
    )
    variables, body = (*rows, place), (*names, *body)
    return RaggedLoop(variables, loop.extents, body, loop.hints, plan.width, cut, loc=loop.loc)


def _placed(stmt: Stmt, column: Var, place: Var) -> Stmt:
    """A statement over places of fragments."""

    def read(node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source.scope() == "local.fragment":
            return tirx.BufferLoad(
                node.source, [substitute(index, {column: place}) for index in node.indices]
            )
        return None

    if isinstance(stmt, Bind):
        return replace(stmt, value=transform(stmt.value, read))
    assert isinstance(stmt, Store)
    indices = tuple(transform(index, read) for index in stmt.indices)
    if stmt.buffer.scope() == "local.fragment":
        indices = tuple(substitute(index, {column: place}) for index in indices)
    return replace(stmt, indices=indices, value=transform(stmt.value, read))
