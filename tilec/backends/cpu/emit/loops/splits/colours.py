"""Iterations of which one in several does something, in place, as those of red and black points.

for i, j in parallel(32, 64): if (i + j) % 2 == 0: U[i, j] = U[i, j - 1] + U[i, j + 1]
->
for i, j in parallel(32, 32): r = (0 - i) % 2; U[i, j * 2 + r] = U[i, j * 2 + r - 1] + U[i, j * 2 + r + 1]

Vectors that are stored under a mask would lie across those that are read next, which waits for the store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.splits.residues import Residue, needed, residue_of
from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import all_of, as_expr, conjuncts, dtype_of, inlined, int_value, same, same_all, uses
from tilec.ir.nodes import Bind, Block, If, Parallel, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import accesses, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Stmt

#: Remainders beyond which elements that are read lie too far apart for vectors.
_MOST = 4


def of_one_colour(loop: Parallel, lane: int) -> Parallel:
    """The iterations of ``loop`` that do something, where its body asks for a remainder of the variable of
    the lanes and reads what it stores to; ``loop`` where it does neither."""
    var, names = loop.vars[lane], values_of(walk(loop.body))
    pairs = [(cond, residue_of(cond, var)) for cond in needed(loop.body, names)]
    inside = {each for stmt in walk(loop.body) for each in defined(stmt)}
    found = next(((cond, each) for cond, each in pairs if each is not None and _serves(each, inside)), None)
    if found is None or not _is_in_place(loop.body):
        return loop
    cond, residue = found
    dtype, number = dtype_of(var), residue.number
    trip, first = tirx.Var(str(var.name), dtype), tirx.Var(f"{var.name}_colour", dtype)
    place, end = trip * number + first, as_expr(loop.extents[lane], dtype)
    trips, known = tirx.floordiv(end + (number - 1), number), int_value(end)
    body = renamed(_without(loop.body, cond, names), {var: place})
    tests = [place < end] if known is None or known % number else []
    if int_value(residue.place) not in range(number):
        tests += [residue.place >= 0, residue.place < number]
    if tests:
        body = (If(all_of(tests), body, loc=loop.loc),)
    return replace(
        loop,
        vars=(*loop.vars[:lane], trip, *loop.vars[lane + 1 :]),
        extents=(
            *loop.extents[:lane],
            trips if known is None else -(-known // number),
            *loop.extents[lane + 1 :],
        ),
        body=(Bind(first, tirx.floormod(residue.first, number), loc=loop.loc), *body),
    )


def _serves(residue: Residue, inside: set[Var]) -> bool:
    """Whether a remainder is known ahead of the body, whose trips may differ in it, and small enough."""
    return residue.number <= _MOST and not uses(residue.first, inside)


def _is_in_place(body: Block) -> bool:
    """Whether a body stores to a buffer, not one of an iteration's own, of which it reads other elements."""
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store)]
    return any(
        item.buffer == store.buffer and not same_all(item.indices, store.indices)
        for store in stores
        if store.buffer.scope() not in PER_THREAD
        for item in accesses(body)
        if not item.is_write
    )


def _without(block: Block, cond: Expr, names: Mapping[Var, Expr]) -> Block:
    """A block whose branches do not ask for ``cond``, which is written over no names."""
    return tuple(part for stmt in block for part in _unasked(stmt, cond, names))


def _unasked(stmt: Stmt, cond: Expr, names: Mapping[Var, Expr]) -> Block:
    if not isinstance(stmt, If):
        return (stmt,)
    then = _without(stmt.then, cond, names)
    left = [each for each in conjuncts(stmt.cond) if not same(inlined(each, names), cond)]
    return (replace(stmt, cond=all_of(left), then=then),) if left else then
