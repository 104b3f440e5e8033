"""Additions of one iteration to neighbours are iterations of their own.

for i, j in parallel(64, 32): C[i, j * 2] += s[i, j * 2]; C[i, j * 2 + 1] += s[i, j * 2 + 1]
->
for i, j in parallel(64, 64): C[i, j] += s[i, j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tvm import sym, tirx

from tilec.backends.cuda.analysis.accesses.neighbour_additions import Neighbours
from tilec.ir.exprs import dtype_of, loads
from tilec.ir.nodes import Atomic, Bind, Block, If, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import rename


class PartAdditions(BlockPass):
    """In: Parallel loops. Out: where all that an iteration does behind names and tests is to add neighbours
    of one row to neighbours of another, as T.atomic_addx2 does, each of these has an iteration of its own: a
    thread adds as many at once as there are instructions for, and whole tiles leave as boxes."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops over single elements."""
        return [_parted(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _parted(loop: Parallel) -> Parallel:
    additions, var = _additions(loop.body), loop.vars[-1]
    if len(additions) < 2 or loop.hints.given:
        return loop
    bound = values_of(walk(loop.body)).items()
    names = {name: value for name, value in bound if next(loads(value), None) is None}
    one, number = tirx.Var(str(var.name), dtype_of(var)), tirx.const(len(additions), dtype_of(var))
    made = Neighbours(one, var, names).joined(additions)
    if made is None:
        return loop
    body = rename(_with_end(loop.body, made), {var: one // number})
    extents = (*loop.extents[:-1], sym.Analyzer().simplify(loop.extents[-1] * number))
    return replace(loop, vars=(*loop.vars[:-1], one), extents=extents, body=body)


def _additions(body: Block) -> tuple[Atomic, ...]:
    """What a body ends in, or what the test around its end does: additions alone, behind names."""
    end = tuple(stmt for stmt in body if not isinstance(stmt, Bind))
    if len(end) == 1 and isinstance(end[0], If) and not end[0].orelse:
        return _additions(end[0].then)
    plain = all(isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None for stmt in end)
    return cast("tuple[Atomic, ...]", end) if plain else ()


def _with_end(body: Block, made: Atomic) -> Block:
    """A body with ``made`` in place of its additions."""
    names = tuple(stmt for stmt in body if isinstance(stmt, Bind))
    end = next(stmt for stmt in body if not isinstance(stmt, Bind))
    return (*names, replace(end, then=_with_end(end.then, made)) if isinstance(end, If) else made)
