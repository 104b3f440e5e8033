"""Loops that count the elements of a tile through have a variable for each axis.

for p in parallel(128 * 64): tile[p // 64, p % 64] = X[a + p // 64, b + p % 64]
->
for i, j in parallel(128, 64): tile[i, j] = X[a + i, b + j]
"""

from __future__ import annotations

from dataclasses import replace

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.ir.exprs import inlined, int_value
from tilec.ir.nodes import Bind, Block, Parallel, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import map_stmt
from tilec.lowering.tile_axes import over_axes


class UnfoldAxes(BlockPass):
    """In: any statements. Out: no Parallel loop fills a shared tile in the order of its elements by quotients
    and remainders."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops over axes."""
        return [_unfolded(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _unfolded(loop: Parallel) -> Parallel:
    *names, store = loop.body
    if not isinstance(store, Store) or not all(isinstance(name, Bind) for name in names):
        return loop
    extents = [int_value(extent) for extent in loop.extents]
    if store.buffer.scope() != "shared.dyn" or None in extents or store_of(loop) is not None:
        return loop
    known = values_of(names)
    flat = map_stmt(store, lambda expr: inlined(expr, known))
    made = over_axes(flat, loop.vars, extents)  # type: ignore[arg-type]
    return loop if made is None else replace(loop, vars=made.vars, extents=made.extents, body=made.body)
