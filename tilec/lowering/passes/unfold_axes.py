"""Loops that count the elements of a tile through have a variable for each axis.

for p in parallel(128 * 64): tile[p // 64, p % 64] = X[a + p // 64, b + p % 64]
->
for i, j in parallel(128, 64): tile[i, j] = X[a + i, b + j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import inlined, int_value, loads, may_inline, walk
from tilec.ir.nodes import Bind, Block, Parallel, Stmt, Store
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.distinct import distinct
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import map_stmt
from tilec.lowering.tile_axes import over_axes

if TYPE_CHECKING:
    from tvm.ir import Expr

_TILES = ("shared.dyn", "local.fragment")


class UnfoldAxes(BlockPass):
    """In: any statements. Out: no Parallel loop goes through the elements of a tile, which it fills or reads,
    in their order by quotients and remainders."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops over axes."""
        return [_unfolded(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _unfolded(loop: Parallel) -> Parallel:
    *names, store = loop.body
    extents = [int_value(extent) or 0 for extent in loop.extents]
    if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in names) or 0 in extents:
        return loop
    known = values_of(names)
    if not may_inline((*store.indices, store.value), known):
        return loop
    every = list(loads_of(*loop.body))
    own = [store.indices] if store.buffer.scope() in _TILES else []
    read = [tuple(load.indices) for load in every if load.source.scope() in _TILES]
    if not any(_is_part(inlined(index, known)) for indices in (*own, *read) for index in indices):
        return loop
    flat = map_stmt(store, lambda expr: inlined(expr, known))
    assert isinstance(flat, Store)
    tiles = [load for load in loads(flat.value) if load.source.scope() in _TILES]
    if not distinct(flat.indices, loop.vars, extents):
        return loop
    for tile in (*([None] if own else []), *tiles):
        if any(_is_part(index) for index in (flat.indices if tile is None else tile.indices)):
            made = over_axes(flat, loop.vars, extents, tile=tile) or loop
            return replace(loop, vars=made.vars, extents=made.extents, body=made.body)
    return loop


def _is_part(index: Expr) -> bool:
    return any(isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) for node in walk(index))
