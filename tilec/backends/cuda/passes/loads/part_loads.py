"""A loop that loads several shared tiles becomes a loop for each: one load is what can run ahead.

for i, j: K[i, j] = A[pages[i], j]; V[i, j] = B[pages[i], j]
->
for i, j: K[i, j] = A[pages[i], j]
for i, j: V[i, j] = B[pages[i], j]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.gathers import gather_of
from tilec.ir.analysis.renaming import copied
from tilec.ir.nodes import Bind, Block, Parallel, Stmt, Store
from tilec.ir.traits import read
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from collections.abc import Iterator


class PartLoads(BlockPass):
    """In: any statements. Out: no Parallel loop does nothing but to fill two shared tiles or more, each from
    a tensor at places that may be computed: each tile has a loop of its own, with the names that it takes."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with its loops parted."""
        return [made for stmt in block for made in _parted(stmt)]


def _parted(stmt: Stmt) -> Block:
    if not isinstance(stmt, Parallel):
        return (stmt,)
    stores = [inner for inner in stmt.body if isinstance(inner, Store)]
    tiles = {store.buffer for store in stores}
    if not 1 < len(stores) == len(tiles) or len(stores) + len(_names(stmt)) < len(stmt.body):
        return (stmt,)
    changed = written_in(stmt.body)
    if any(buffer in changed for inner in stmt.body for buffer in read(inner)):
        return (stmt,)
    parts = [replace(stmt, body=(*_names(stmt), store)) for store in stores]
    if any(gather_of(part) is None for part in parts):
        return (stmt,)
    return (parts[0], *_copies(parts[1:]))


def _names(loop: Parallel) -> tuple[Bind, ...]:
    return tuple(inner for inner in loop.body if isinstance(inner, Bind))


def _copies(parts: list[Parallel]) -> Iterator[Stmt]:
    for part in parts:
        yield from copied((part,))
