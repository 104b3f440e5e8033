"""Updates outside of T.Parallel that all threads of a block make of one element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.ir.exprs import loads, same_all
from tilec.ir.nodes import Atomic, Block, Parallel, Store, children
from tilec.ir.nodes.threads import PER_THREAD

if TYPE_CHECKING:
    from tilec.ir.analysis.threads.uniform import Uniformity


def repeated(body: Block, uniform: Uniformity) -> Iterator[Store | Atomic]:
    """The updates of shared or global memory in a block that say nothing of the thread."""
    for stmt in body:
        if isinstance(stmt, Parallel) or uniform.parts(stmt):
            continue
        if isinstance(stmt, (Store, Atomic)) and _repeats(stmt, uniform):
            yield stmt
        for block in children(stmt):
            yield from repeated(block, uniform)


def _repeats(stmt: Store | Atomic, uniform: Uniformity) -> bool:
    """Whether a statement changes one element of shared or global memory by one value in all threads; threads
    that hold one element of a fragment store to copies of it."""
    if stmt.buffer.scope() in PER_THREAD or uniform.varies(stmt.value, *stmt.indices):
        return False
    if isinstance(stmt, Atomic):
        return True
    if stmt.buffer.scope() == "local.fragment":
        return False
    reads = [load for load in loads(stmt.value) if load.source.same_as(stmt.buffer)]
    return any(same_all(tuple(load.indices), stmt.indices) for load in reads)
