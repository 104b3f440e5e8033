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
from tilec.lowering.analysis.facts import gap

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch


_CONTRARY = {tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.GT: tirx.LE, tirx.LE: tirx.GT}


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
    row, column = stmt.vars
    for kept, other, negated in ((first, second, False), (second, first, True)):
        limit = _limit(cond, column, negated)
        read = [load.source for load in loads(cond)]
        if limit is None or store.buffer in read or uses(other, stmt.vars) or not _is_on_chip(kept):
            continue
        bind = Bind(tirx.Var("limit", dtype_of(limit)), limit)
        mask = RowMask(whole_tile(store.buffer), row, (bind,), other, loc=stmt.loc)
        plain = replace(stmt, body=(replace(store, value=kept),))
        return (mask,) if _is_own(kept, store) else (plain, mask)
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


def _limit(cond: Expr, column: Var, negated: bool) -> Expr | None:
    """The first column for which ``cond``, or its contrary, fails, where it fails from there on; None where
    that is open."""
    atoms = _contraries(cond) if negated else conditions(cond)
    limits = [None if atom is None else _atom_limit(atom, column) for atom in atoms]
    result: Expr | None = None
    for limit in limits:
        if limit is None:
            return None
        result = limit if result is None else tirx.Min(result, limit)
    return result


def _contraries(cond: Expr) -> tuple[Expr | None, ...]:
    """The parts of the contrary of ``cond``; None for one that is no comparison."""
    if isinstance(cond, (tirx.Or, tirx.BitwiseOr)):
        return (*_contraries(cond.a), *_contraries(cond.b))
    contrary = _CONTRARY.get(type(cond))
    return (None if contrary is None else contrary(cond.a, cond.b),)


def _atom_limit(cond: Expr, column: Var) -> Expr | None:
    room = gap(cond)
    linear = linear_in(room, [column]) if room is not None else None
    if not linear or int_value(linear[0]) != -1:
        return None
    return sym.Analyzer().simplify(linear[1])
