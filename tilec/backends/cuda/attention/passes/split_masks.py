"""Trips in which a mask changes nothing run without it.

A mask does nothing in the trips in which its condition holds for every element. Where that is so up to some
trip, or from some trip on, the loop is cut there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.trips.cuts import Cut, border, cut_of, joined, least_of, room_cut
from tilec.backends.cuda.attention.assign.parts import needed
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, RowMask, Turn, ZeroRows
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, copied, with_loops
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import dtype_of, inlined, int_value, is_zero, same_all
from tilec.ir.nodes import Bind, Block, For, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import gap

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch


class SplitMasks(AttentionPass):
    """In: serial loops in the consumers of AttentionRoles. Out: such a loop as two, one of them without
    masks."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their loops cut."""
        return replace(roles, consumer=with_loops(roles.consumer, _from_begin))


def _from_begin(loop: For) -> Block:
    """A loop as the trips in which rows begin inside of it, or behind, and the others, cut on where masks
    begin."""
    values = values_of(loop.body)
    masks = {stmt: stmt.begin for stmt in loop.body if isinstance(stmt, RowMask) and stmt.begin is not None}
    cuts = [_begin_cut(mask, begin, loop, values) for mask, begin in masks.items()]
    found = [cut for cut in cuts if cut is not None and not cut.first]
    if not masks or len(found) < len(cuts):
        return _loop(loop)
    body = needed(
        tuple(new for stmt in loop.body for new in (_up_to_limit(stmt) if stmt in masks else (stmt,)))
    )
    bound, second = _names(loop, "begun")
    behind = replace(loop, var=second, start=bound, body=copied(body, {loop.var: second}))
    return (
        Bind(bound, border(found, loop.start, loop.stop)),
        replace(loop, stop=bound),
        *_loop(behind),
    )


def _up_to_limit(mask: Stmt) -> Block:
    """A mask without its beginning; none where there is no limit either."""
    assert isinstance(mask, RowMask)
    limit = int_value(mask.limit)
    whole = limit is not None and limit >= (int_value(mask.tile.extent[1]) or 1)
    return () if whole else (replace(mask, body=mask.body[:1]),)


def _begin_cut(mask: RowMask, begin: Expr, loop: For, values: dict[Var, Expr]) -> Cut | None:
    """From which trip on rows begin with the first column of a tile."""
    ranges = {mask.row: int_value(mask.tile.extent[0]) or 1}
    parts = _parts(tirx.Max, inlined(begin, values))
    return joined([room_cut(1 - part, loop.var, ranges, values) for part in parts])


def _names(loop: For, cut: str) -> tuple[Var, Var]:
    dtype = dtype_of(loop.var)
    return tirx.Var(cut, dtype), tirx.Var(loop.var.name, dtype)


def _loop(loop: For) -> Block:
    values = values_of(loop.body)
    cuts = [_cut(stmt, loop, values) for stmt in loop.body]
    masks = [stmt for stmt, cut in zip(loop.body, cuts, strict=True) if cut is not None]
    found = [cut for cut in cuts if cut is not None]
    if not masks or len({cut.first for cut in found}) > 1:
        return (loop,)
    bare = needed(_from_zero(tuple(stmt for stmt in loop.body if stmt not in masks)))
    cut, second = _names(loop, "border")
    again = copied(loop.body if found[0].first else bare, {loop.var: second})
    bodies = (bare, again) if found[0].first else (loop.body, again)
    return (
        Bind(cut, border(found, loop.start, loop.stop)),
        replace(loop, stop=cut, body=bodies[0]),
        replace(loop, var=second, start=cut, body=bodies[1]),
    )


def _from_zero(block: Block) -> Block:
    """``block`` with products that start from 0 where a loop in front of their turn sets their sums to 0."""
    made: list[Stmt] = []
    for stmt in block:
        at = len(made) - (2 if made and isinstance(made[-1], Turn) else 1)
        if isinstance(stmt, AsyncProduct) and at >= 0 and _clears(made[at], stmt.c.buffer):
            del made[at]
            stmt = replace(stmt, clear=tirx.const(True, "bool"))
        made.append(stmt)
    return tuple(made)


def _clears(stmt: Stmt, sums: Var) -> bool:
    if not isinstance(stmt, ThreadLoop) or len(stmt.body) != 1:
        return False
    (store,) = stmt.body
    own = isinstance(store, Store) and store.buffer.same_as(sums) and same_all(store.indices, stmt.vars)
    return own and is_zero(store.value)  # type: ignore[attr-defined]


def _cut(stmt: Stmt, loop: For, values: dict[Var, Expr]) -> Cut | None:
    """Where a mask begins or ends to do something; None for a statement that is no mask."""
    if isinstance(stmt, ZeroRows):
        extent = int_value(stmt.tile.extent[-2]) or 1
        return cut_of(stmt.keep, loop.var, {stmt.row: extent}, values)
    if not isinstance(stmt, RowMask) or stmt.begin is not None:
        return None
    rows, columns = (int_value(extent) or 1 for extent in stmt.tile.extent)
    limits = _parts(tirx.Min, inlined(stmt.limit, values))
    ranges = {stmt.row: rows}
    of_rows = [limit.condition for limit in limits if isinstance(limit, tirx.Select)]
    moving = [limit - (columns - 1) for limit in limits if not isinstance(limit, tirx.Select)]
    cut = joined([room_cut(limit, loop.var, ranges, values) for limit in moving])
    return None if cut is None else _where_rows_hold(cut, of_rows, loop, ranges, values)


def _where_rows_hold(
    cut: Cut, of_rows: list[Expr], loop: For, ranges: dict[Var, int], values: dict[Var, Expr]
) -> Cut | None:
    """A cut that leaves no trip without the mask unless ``of_rows`` hold for all rows; None where that is
    open."""
    for cond in of_rows:
        room = least_of(gap(cond), ranges, values)
        if room is None:
            return None
        never = loop.start if cut.first else loop.stop
        cut = replace(cut, at=tirx.Select(room > 0, cut.at, never))
    return cut


def _parts(kind: type[tirx.Min | tirx.Max], expr: Expr) -> list[Expr]:
    """The operands of a minimum or a maximum."""
    return [*_parts(kind, expr.a), *_parts(kind, expr.b)] if isinstance(expr, kind) else [expr]
