"""Trips in which a mask changes nothing run without it.

A mask does nothing in the trips in which its condition holds for every element. Where that is so up to some
trip, or from some trip on, the loop is cut there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.attention.find_masks import conditions
from tilec.backends.cuda.attention.nodes import AttentionRoles, RowMask, ZeroRows
from tilec.backends.cuda.attention.parts import needed
from tilec.backends.cuda.attention.rewriting import AttentionPass, copied
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, uses
from tilec.ir.nodes import Bind, Block, For, If, Stmt
from tilec.lowering.analysis.facts import gap

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch


class SplitMasks(AttentionPass):
    """In: serial loops in the consumers of AttentionRoles. Out: such a loop as two, one of them without
    masks."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their loops cut."""
        return replace(roles, consumer=_block(roles.consumer))


def _block(block: Block) -> Block:
    made: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, If):
            stmt = replace(stmt, then=_block(stmt.then), orelse=_block(stmt.orelse))
        made += _loop(stmt) if isinstance(stmt, For) else (stmt,)
    return tuple(made)


def _loop(loop: For) -> tuple[Stmt, ...]:
    values = {stmt.var: stmt.value for stmt in loop.body if isinstance(stmt, Bind)}
    cuts = [_cut(stmt, loop.var, values) for stmt in loop.body]
    masks = [stmt for stmt, cut in zip(loop.body, cuts, strict=True) if cut is not None]
    found = [cut for cut in cuts if cut is not None]
    if not masks or len({cut.first for cut in found}) > 1:
        return (loop,)
    bare = needed(tuple(stmt for stmt in loop.body if stmt not in masks))
    second = tirx.Var(loop.var.name, dtype_of(loop.var))
    border = tirx.Var("border", dtype_of(loop.var))
    again = copied(loop.body if found[0].first else bare, {loop.var: second})
    bodies = (bare, again) if found[0].first else (loop.body, again)
    return (
        Bind(border, _border(found, loop)),
        replace(loop, stop=border, body=bodies[0]),
        replace(loop, var=second, start=border, body=bodies[1]),
    )


@dataclass(frozen=True, eq=False)
class _Cut:
    """A mask does nothing in the trips before ``at`` if ``first``, else from ``at`` on."""

    at: Expr
    first: bool


def _border(cuts: list[_Cut], loop: For) -> Expr:
    """Where all masks begin, or where all have ended; inside the loop."""
    border = cuts[0].at
    for cut in cuts[1:]:
        border = tirx.Min(border, cut.at) if cut.first else tirx.Max(border, cut.at)
    return tirx.Max(tirx.Min(border, loop.stop), loop.start)


def _cut(stmt: Stmt, var: Var, values: dict[Var, Expr]) -> _Cut | None:
    """Where a mask begins or ends to do something; None for a statement that is no mask."""
    if isinstance(stmt, ZeroRows):
        extent = int_value(stmt.tile.extent[-2]) or 1
        rooms = [gap(condition) for condition in conditions(stmt.keep)]
        return _first_of([_atom_cut(room, var, {stmt.row: extent}, values) for room in rooms])
    if not isinstance(stmt, RowMask):
        return None
    rows, columns = (int_value(extent) or 1 for extent in stmt.tile.extent)
    limits = _minima(inlined(stmt.limit, values))
    return _first_of([_atom_cut(limit - (columns - 1), var, {stmt.row: rows}, values) for limit in limits])


def _minima(expr: Expr) -> list[Expr]:
    """The operands of a minimum."""
    return [*_minima(expr.a), *_minima(expr.b)] if isinstance(expr, tirx.Min) else [expr]


def _first_of(cuts: list[_Cut | None]) -> _Cut | None:
    """One cut for conditions that must all hold."""
    found = [cut for cut in cuts if cut is not None]
    if len(found) < len(cuts) or len({cut.first for cut in found}) > 1:
        return None
    at = found[0].at
    for cut in found[1:]:
        at = tirx.Min(at, cut.at) if cut.first else tirx.Max(at, cut.at)
    return _Cut(at, found[0].first)


def _atom_cut(room: Expr | None, var: Var, ranges: dict[Var, int], values: dict[Var, Expr]) -> _Cut | None:
    """Where ``room`` > 0 for all of ``ranges`` stops or begins to hold; None where it is not linear."""
    if room is None:
        return None
    least = sym.Analyzer().simplify(inlined(room, values))
    for each, extent in ranges.items():
        linear = linear_in(least, [each])
        factor = int_value(linear[0]) if linear else None
        if factor is None:
            return None
        least = linear[1] + linear[0] * (extent - 1 if factor < 0 else 0)
    linear = linear_in(least, [var])
    factor = int_value(linear[0]) if linear else None
    if factor is None or factor == 0 or uses(linear[1], (var,)):
        return None
    rest, step = linear[1], tirx.const(abs(factor), dtype_of(var))
    if factor < 0:
        return _Cut(tirx.floordiv(sym.Analyzer().simplify(rest + step - 1), step), True)
    return _Cut(tirx.floordiv(sym.Analyzer().simplify(0 - rest), step) + 1, False)
