"""Loops that put something else behind a column of each row become masks of rows.

    for i, j: S[i, j] = if_then_else(c * j + f(i) < e and ..., g(S[i, j]), other)

One comparison of a column with its row's limit takes the place of all conditions. What such a loop computes
of elements on chip (a scale, a slope, a bias) is a loop of its own in front of the mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.cuts import conditions
from tilec.backends.cuda.analysis.tiles import whole_tile
from tilec.backends.cuda.attention.nodes import AttentionRoles, RowMask
from tilec.backends.cuda.attention.rewriting import AttentionPass
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads, same_all, substitute, uses
from tilec.ir.nodes import Bind, Block, Pipelined, Stmt, Store
from tilec.lowering.analysis.facts import gap, opposite

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch


class FindMasks(AttentionPass):
    """In: AttentionRoles with a Pipelined loop in its consumers. Out: RowMask in it for what loops mask of
    columns."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their masks."""
        return replace(roles, consumer=tuple(_in_loop(stmt) for stmt in roles.consumer))


def _in_loop(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Pipelined):
        return stmt
    return replace(stmt, body=tuple(new for inner in stmt.body for new in _parted(inner)))


def _parted(stmt: Stmt) -> Block:
    """What a loop over a whole fragment computes, and the mask behind it; any other statement as it is."""
    if not isinstance(stmt, ThreadLoop) or len(stmt.vars) != 2:
        return (stmt,)
    store = _only_store(stmt.body)
    if store is None or not same_all(store.indices, stmt.vars):
        return (stmt,)
    value = _inlined(store.value, stmt.body)
    if call_name(value) != "if_then_else":
        return (stmt,)
    cond, first, second = value.args
    for holds, kept, other in ((cond, first, second), (opposite(cond), second, first)):
        limit = _limit(holds, stmt)
        read = [load.source for load in loads(cond)]
        if limit is None or store.buffer in read or uses(other, stmt.vars) or not _is_on_chip(kept):
            continue
        bind = Bind(tirx.Var("limit", dtype_of(limit)), limit)
        mask = RowMask(whole_tile(store.buffer), stmt.vars[0], (bind,), other, loc=stmt.loc)
        return (mask,) if _is_own(kept, store) else (replace(stmt, body=(replace(store, value=kept),)), mask)
    return (stmt,)


def _is_on_chip(value: Expr) -> bool:
    """Whether a value may as well be computed where a mask hides it: it reads no tensor."""
    return not any(load.source.scope().startswith("global") for load in loads(value))


def _only_store(body: Block) -> Store | None:
    """The one store of a block that otherwise binds names."""
    *names, last = body
    plain = isinstance(last, Store) and all(isinstance(stmt, Bind) for stmt in names)
    return last if plain else None  # type: ignore[return-value]


def _inlined(expr: Expr, body: Block) -> Expr:
    for stmt in reversed(body):
        if isinstance(stmt, Bind):
            expr = substitute(expr, {stmt.var: stmt.value})
    return expr


def _is_own(value: Expr, store: Store) -> bool:
    own = isinstance(value, TensorLoad) and value.source.same_as(store.buffer)
    return own and same_all(tuple(value.indices), store.indices)


def _limit(cond: Expr, loop: ThreadLoop) -> Expr | None:
    """The first column for which ``cond`` fails, where it fails from there on; None where that is open, or
    the same for all columns."""
    column = loop.vars[1]
    parts = conditions(cond)
    limits = [_atom_limit(part, column, loop.extents[1]) for part in parts]
    result: Expr | None = None
    for limit in limits:
        if limit is None or not any(uses(part, (column,)) for part in parts):
            return None
        result = limit if result is None else tirx.Min(result, limit)
    return result


def _atom_limit(cond: Expr, column: Var, columns: Expr | int) -> Expr | None:
    """As above; where rows alone tell, all columns or none."""
    room = gap(cond)
    if room is not None and not uses(room, (column,)):
        dtype = dtype_of(room)
        return tirx.Select(cond, tirx.const(int_value(columns) or 0, dtype), tirx.const(0, dtype))
    linear = linear_in(room, [column]) if room is not None else None
    if not linear or int_value(linear[0]) != -1:
        return None
    return sym.Analyzer().simplify(linear[1])
