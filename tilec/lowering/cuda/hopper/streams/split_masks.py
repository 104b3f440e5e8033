"""Trips in which a mask changes nothing run without it.

A loop over elements that only puts something else where a condition fails does nothing in the trips in which
the condition holds for every element. Where that is so up to some trip, the loop is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.nodes import Bind, Block, For, If, Kernel, Stmt, Store
from tilec.lowering.cuda.hopper.match import call_name
from tilec.lowering.cuda.hopper.streams.copies import copied
from tilec.lowering.cuda.hopper.streams.nodes import Streamed, ZeroRows
from tilec.lowering.cuda.hopper.streams.parts import needed
from tilec.lowering.cuda.hopper.streams.rewriting import rewrite_streamed
from tilec.lowering.cuda.nodes import ThreadLoop
from tilec.lowering.exprs import dtype_of, int_value, same_all, substitute, uses
from tilec.lowering.facts import gap

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


@dataclass(frozen=True)
class SplitMasks:
    """In: serial loops in the consumers of Streamed. Out: such a loop as two, the first without masks."""

    name: str = "split_masks"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loops cut."""
        return rewrite_streamed(kernel, lambda launch, stmt: _split(stmt))


def _split(streamed: Streamed) -> Streamed:
    return replace(streamed, consumer=_block(streamed.consumer))


def _block(block: Block) -> Block:
    made: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, If):
            stmt = replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse))
        made += _loop(stmt) if isinstance(stmt, For) else (stmt,)
    return tuple(made)


def _loop(loop: For) -> tuple[Stmt, ...]:
    values = {stmt.var: stmt.value for stmt in loop.body if isinstance(stmt, Bind)}
    ends = {id(stmt): _full_trips(stmt, loop.var, values) for stmt in loop.body}
    masks = [stmt for stmt in loop.body if ends[id(stmt)] is not None]
    if not masks:
        return (loop,)
    cut: Expr = loop.stop
    for mask in masks:
        cut = tirx.Min(cut, ends[id(mask)])
    whole = tirx.Var("whole", dtype_of(loop.var))
    bare = needed(tuple(stmt for stmt in loop.body if stmt not in masks))
    second = tirx.Var(loop.var.name, dtype_of(loop.var))
    return (
        Bind(whole, tirx.Max(cut, loop.start)),
        replace(loop, stop=whole, body=bare),
        replace(loop, var=second, start=whole, body=copied(loop.body, {loop.var: second})),
    )


def _full_trips(stmt: Stmt, var: Var, values: dict[Var, Expr]) -> Expr | None:
    """The trip from which on a mask may do something; None for a statement that is no mask."""
    if isinstance(stmt, ZeroRows):
        extent = int_value(stmt.tile.extent[-2]) or 1
        return _bound(_inlined(stmt.keep, values), var, {stmt.row: extent})
    if not isinstance(stmt, ThreadLoop):
        return None
    inner = {part.var: part.value for part in stmt.body if isinstance(part, Bind)}
    stores = [part for part in stmt.body if isinstance(part, Store)]
    if len(stores) != 1 or len(inner) + 1 != len(stmt.body):
        return None
    (store,) = stores
    value = _inlined(store.value, inner)
    if call_name(value) != "if_then_else" or not _is_own(value.args[1], store):
        return None
    ranges = dict(zip(stmt.vars, stmt.extents, strict=True))
    return _bound(_inlined(value.args[0], {**values, **inner}), var, ranges)


def _inlined(expr: Expr, values: dict[Var, Expr]) -> Expr:
    for _ in values:
        expr = substitute(expr, values)
    return expr


def _is_own(value: Expr, store: Store) -> bool:
    """Whether a value is what the element holds."""
    own = isinstance(value, TensorLoad) and value.source.same_as(store.buffer)
    return own and same_all(tuple(value.indices), store.indices)


def _bound(cond: Expr, var: Var, ranges: dict[Var, int]) -> Expr | None:
    """The first value of ``var`` for which ``cond`` may fail somewhere in ``ranges``; it then may for all
    greater ones. None where the parts of ``cond`` are not linear."""
    ends = [_atom_bound(atom, var, ranges) for atom in _conjuncts(cond)]
    result: Expr | None = None
    for end in ends:
        if end is None:
            return None
        result = end if result is None else tirx.Min(result, end)
    return result


def _conjuncts(cond: Expr) -> tuple[Expr, ...]:
    if isinstance(cond, (tirx.And, tirx.BitwiseAnd)):
        return (*_conjuncts(cond.a), *_conjuncts(cond.b))
    return (cond,)


def _atom_bound(cond: Expr, var: Var, ranges: dict[Var, int]) -> Expr | None:
    least = gap(cond)
    if least is None:
        return None
    for each, extent in ranges.items():
        linear = sym.detect_linear_equation(least, [each])
        factor = int_value(linear[0]) if linear else None
        if factor is None:
            return None
        least = linear[1] + linear[0] * (extent - 1 if factor < 0 else 0)
    linear = sym.detect_linear_equation(least, [var])
    factor = int_value(linear[0]) if linear else None
    if factor is None or factor >= 0 or uses(linear[1], (var,)):
        return None
    step = tirx.const(-factor, dtype_of(var))
    return tirx.floordiv(sym.Analyzer().simplify(linear[1] + step - 1), step)
