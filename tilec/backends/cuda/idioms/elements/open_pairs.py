"""Loops over pairs of columns that store both are loops over columns.

for i, j: C[i, 2 j] = x(j); C[i, 2 j + 1] = y(j)    ->    for i, c: C[i, c] = x(c // 2) or y(c // 2)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, same_all, substitute
from tilec.ir.nodes import Bind, Block, Launch, Parallel, Pipelined, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NOTE = "its loop over pairs of columns of {} is one over columns"


class OpenPairs(LaunchPass):
    """In: behind a pipelined loop, loops that store two elements of a matrix in each trip, at columns 2 j and
    2 j + 1 of what starts somewhere, and read none of it. Out: loops that store one, what either trip of a
    pair stores."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with a note for each loop."""
        notes: list[str] = []
        body = rewrite_blocks(launch.body, lambda block: _opened(block, notes))
        return with_notes(replace(launch, body=body), notes) if notes else launch


def _opened(block: Block, notes: list[str]) -> Block:
    at = next((place for place, stmt in enumerate(block) if isinstance(stmt, Pipelined)), len(block))
    return (*block[:at], *(_over_columns(stmt, notes) for stmt in block[at:]))


def _over_columns(stmt: Stmt, notes: list[str]) -> Stmt:
    stores = _stores(stmt) if isinstance(stmt, Parallel) else None
    if not isinstance(stmt, Parallel) or stores is None:
        return stmt
    first, second = stores
    pair = stmt.vars[-1]
    start = _start(first, second, pair)
    extent = int_value(stmt.extents[-1])
    if start is None or extent is None:
        return stmt
    dtype = dtype_of(pair)
    column = tirx.Var(str(pair.name), dtype)
    even = tirx.EQ(tirx.floormod(column, tirx.const(2, dtype)), tirx.const(0, dtype))
    values = {pair: tirx.floordiv(column, tirx.const(2, dtype))}
    value = _choice(even, substitute(first.value, values), substitute(second.value, values))
    notes.append(_NOTE.format(first.buffer.name))
    store = replace(first, indices=(*first.indices[:-1], start + column), value=value)
    return replace(
        stmt,
        vars=(*stmt.vars[:-1], column),
        extents=(*stmt.extents[:-1], tirx.const(2 * extent, "int32")),
        body=(store,),
    )


def _stores(loop: Parallel) -> tuple[Store, Store] | None:
    """The two stores of a loop, with values in place of names; None where there is anything else, or they
    read what they write."""
    *binds, first, second = loop.body if len(loop.body) > 1 else (loop, loop)
    if not all(isinstance(stmt, Bind) for stmt in binds):
        return None
    if not isinstance(first, Store) or not isinstance(second, Store):
        return None
    names = values_of(binds)
    made = [replace(stmt, value=inlined(stmt.value, names)) for stmt in (first, second)]
    read = {load.source for stmt in made for load in loads(stmt.value)}
    return None if first.buffer in read or loop.hints.given else (made[0], made[1])


def _start(first: Store, second: Store, pair: Var) -> Expr | None:
    """The first column of all; None where the two are no neighbours of a row."""
    rows = same_all(tuple(first.indices[:-1]), tuple(second.indices[:-1]))
    places = [linear_in(store.indices[-1], (pair,)) for store in (first, second)]
    if not first.buffer.same_as(second.buffer) or not rows or not all(places):
        return None
    (factor, start), (other, behind) = places
    apart = int_value(sym.Analyzer().simplify(behind - start))
    return start if (int_value(factor), int_value(other), apart) == (2, 2, 1) else None


def _choice(holds: Expr, value: Expr, other: Expr) -> Expr:
    """Either value; converted behind the choice where both are."""
    if (
        isinstance(value, tirx.Cast)
        and isinstance(other, tirx.Cast)
        and dtype_of(value.value) == dtype_of(other.value)
    ):
        return tirx.Cast(dtype_of(value), tirx.if_then_else(holds, value.value, other.value))
    return tirx.if_then_else(holds, value, other)
