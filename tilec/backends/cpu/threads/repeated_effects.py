"""Effects of all threads of a block in one place: refused on a CPU, where a block is one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.exprs import loads, same_all
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of

if TYPE_CHECKING:
    from tilec.ir.analysis.uniform import Uniformity


def refuse_repeated(body: ir.Block, uniform: Uniformity) -> None:
    """Raises UnsupportedError for an update of shared or global memory that says nothing of the thread."""
    for stmt in body:
        if isinstance(stmt, ir.Parallel) or uniform.parts(stmt):
            continue
        if isinstance(stmt, (ir.Store, ir.Atomic)) and _repeats(stmt, uniform):
            raise UnsupportedError(
                f"{stmt.buffer.name} is updated by each thread of the block",
                place=place_of(stmt),
                why="the statement stands outside of T.Parallel: the thread count multiplies its effect",
                remedy="put it in T.Parallel (of extent 1 for a single update), or under `if tx == 0`",
            )
        for block in ir.children(stmt):
            refuse_repeated(block, uniform)


def _repeats(stmt: ir.Store | ir.Atomic, uniform: Uniformity) -> bool:
    """Whether a statement changes one element of shared or global memory by one value in all threads."""
    if stmt.buffer.scope() in PER_THREAD or uniform.varies(stmt.value, *stmt.indices):
        return False
    if isinstance(stmt, ir.Atomic):
        return True
    reads = [load for load in loads(stmt.value) if load.source.same_as(stmt.buffer)]
    return any(same_all(tuple(load.indices), stmt.indices) for load in reads)
