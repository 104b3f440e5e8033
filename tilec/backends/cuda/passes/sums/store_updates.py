"""Atomic updates of fragments become stores, which nothing comes between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.ir.nodes import Atomic, Bind, Block, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import element_of
from tilec.lowering.analysis.updates import UPDATES, stored
from tilec.lowering.passes.base import BlockPass, replaced


class StoreUpdates(BlockPass):
    """In: Parallel loops that update elements of fragments atomically. Out: the same as stores
    ``f[i] = f[i] + value``, behind a name for what the element held where that is asked for: threads hold
    fragments, so that iterations of one element are an accumulation like any other."""

    def block(self, block: Block) -> Sequence[Stmt]:
        """The block with such loops rewritten."""
        return [_loop(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _loop(loop: Parallel) -> Stmt:
    updates = [stmt for stmt in walk(loop.body) if isinstance(stmt, Atomic) and _is_held(stmt)]
    if not updates:
        return loop
    return replace(loop, body=replaced(loop.body, {stmt: _store(stmt) for stmt in updates}))


def _is_held(stmt: Atomic) -> bool:
    return stmt.buffer.scope() == "local.fragment" and stmt.kind in UPDATES


def _store(stmt: Atomic) -> Block:
    held = () if stmt.prev is None else (Bind(stmt.prev, element_of(stmt), loc=stmt.loc),)
    return (*held, stored(stmt))
