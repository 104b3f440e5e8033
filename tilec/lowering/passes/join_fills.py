"""Tiles that are filled with a number, and then with what is there, are filled once: with choices.

fill(tile, 0)
for i, j: if row[i] >= 0: tile[i, j] = X[row[i], j]
->
for i, j: tile[i, j] = if_then_else(row[i] >= 0, X[row[i], j], 0)
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tilec.ir.exprs import cast_to, inlined, loads, may_inline, reads
from tilec.ir.nodes import Bind, Block, Fill, If, Parallel, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import touches
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.passes.base import BlockPass


class JoinFills(BlockPass):
    """In: any statements. Out: no tile is filled with a number where the next statement that names it is a
    loop that stores to each of its elements on a condition, and reads none of them: that loop stores the
    number elsewhere."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its fills joined."""
        made = list(block)
        for fill in block:
            if isinstance(fill, Fill) and _is_of_number(fill):
                _join(made, fill)
        return made


def _is_of_number(fill: Fill) -> bool:
    """Whether a statement fills all of a tile with what no element tells."""
    is_tile = fill.dst.buffer.scope() != "global" and is_whole(fill.dst)
    return is_tile and next(loads(fill.value), None) is None


def _join(block: list[Stmt], fill: Fill) -> None:
    place = block.index(fill)
    behind = (each for each, stmt in enumerate(block[place + 1 :], place + 1)
              if touches(stmt, fill.dst.buffer))  # fmt: skip
    at = next(behind, None)
    loop = None if at is None else _with_choice(block[at], fill)
    if at is not None and loop is not None:
        block[at] = loop
        del block[place]


def _with_choice(loop: Stmt, fill: Fill) -> Parallel | None:
    """A loop whose stores on a condition choose between their value and that of a fill; None of others."""
    *names, branch = loop.body if isinstance(loop, Parallel) else (None,)
    if not isinstance(branch, If) or branch.orelse or not all(isinstance(name, Bind) for name in names):
        return None
    *inner, store = branch.then
    if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in inner):
        return None
    tile, known = fill.dst.buffer, values_of((*names, *inner))
    if not may_inline((branch.cond, store.value, *store.indices), known):
        return None
    cond, value = inlined(branch.cond, known), inlined(store.value, known)
    indices = tuple(inlined(index, known) for index in store.indices)
    if not store.buffer.same_as(tile) or any(reads(each, {tile}) for each in (cond, value)):
        return None
    value, number = (cast_to(each, str(tile.dtype)) for each in (value, fill.value))
    chosen = replace(store, indices=indices, value=tirx.if_then_else(cond, value, number))
    assert isinstance(loop, Parallel)
    once = all(any(index.same_as(var) for index in indices) for var in loop.vars)
    return replace(loop, body=(chosen,)) if once and stores_each(chosen, loop) else None
