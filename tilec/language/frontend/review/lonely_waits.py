"""Barriers that cannot be what their author means: some threads come to one that waits for all, or more
arrive at once than a phase takes. On a GPU such a block waits for ever, or for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from tilec.errors import Place, Remark
from tilec.ir import nodes as ir
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Rest
from tilec.ir.nodes.barriers import AllocBarrier, Arrive, Group
from tilec.ir.nodes.threads import Sync

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

_APART = "move it out of the branch or loop, or make the condition the same for all threads"


def lonely_waits(kernel: ir.Kernel) -> Iterator[Remark]:
    """A warning for each `T.sync_threads` where a condition parts threads, and for each arrival of more
    threads than a phase of the barrier takes. Threads of `T.ws` meet among themselves."""
    for launch in kernel.launches:
        yield from _Launch(launch, kernel.name).found()


class _Launch:
    """What is known of a launch: its barriers' counts, and which conditions part its threads."""

    def __init__(self, launch: ir.Launch, name: str) -> None:
        self._launch, self._name = launch, name
        self._uniform = Uniformity(launch)
        self._counts: Mapping[Var, tuple[int, ...]] = {
            stmt.buffer: stmt.counts
            for stmt in ir.walk(launch.body)
            if isinstance(stmt, AllocBarrier) and not stmt.cluster
        }

    def found(self) -> Iterator[Remark]:
        """The remarks."""
        return self._block(self._launch.body, prod(self._launch.threads), False)

    def _block(self, block: ir.Block, threads: int, parted: bool) -> Iterator[Remark]:
        """Of statements that ``threads`` run, or, ``parted``, some of them."""
        for stmt in block:
            if isinstance(stmt, Sync) and stmt.kind == "threads" and stmt.barrier is None and parted:
                what = "T.sync_threads stands where only some threads of the block may come: it waits for all"
                yield self._remark(what, stmt, _APART)
            if isinstance(stmt, Arrive) and not parted:
                yield from self._arrival(stmt, threads)
            inside = stmt.count if isinstance(stmt, Group) else threads
            apart = parted or (self._uniform.parts(stmt) and not isinstance(stmt, Rest))
            for inner in ir.children(stmt):
                yield from self._block(inner, inside, apart)

    def _arrival(self, stmt: Arrive, threads: int) -> Iterator[Remark]:
        counts, index = self._counts.get(stmt.barrier, ()), int_value(stmt.index)
        of_all = counts if index is None else counts[index : index + 1]
        if not of_all or threads <= max(of_all):
            return
        name, takes = stmt.barrier.name, max(of_all)
        what = f"{threads} threads arrive at {name}, of which a phase takes {takes}"
        remedy = f"allocate it as T.alloc_barrier({threads}), or let fewer threads arrive"
        yield self._remark(what, stmt, remedy)

    def _remark(self, what: str, stmt: ir.Stmt, remedy: str) -> Remark:
        place = Place(stmt.loc.file, stmt.loc.line) if stmt.loc else Place(self._name)
        return Remark(what, place, remedy)
