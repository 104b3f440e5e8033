"""What passes over the Streamed statement of each launch share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.attention.nodes import Streamed
from tilec.backends.cuda.nodes import BlockReduce, ThreadLoop, WarpGemm
from tilec.ir.nodes import Bind, Block, Kernel, Launch, Stmt, walk
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.lowering.analysis.facts import Facts


def streamed(launch: Launch) -> Streamed | None:
    """The roles of a launch whose rows stay in registers; None for any other."""
    return next((stmt for stmt in launch.body if isinstance(stmt, Streamed)), None)


def rewrite_streamed(kernel: Kernel, rewrite: Callable[[Launch, Streamed], Streamed]) -> Kernel:
    """``kernel`` with every Streamed replaced."""

    def launch_of(launch: Launch) -> Launch:
        found = streamed(launch)
        if found is None:
            return launch
        made = rewrite(launch, found)
        return replace(launch, body=tuple(made if stmt is found else stmt for stmt in launch.body))

    return rewrite_launches(kernel, launch_of)


def producer_facts(kernel: Kernel, launch: Launch, producer: Block) -> Facts:
    """What is known inside a launch's body where its producer begins its loop."""
    scope = ScopedRewrite(kernel, launch)
    for stmt in producer:
        if isinstance(stmt, Bind):
            scope.stmt(stmt)
    return scope.facts


def touched(stmt: Stmt) -> tuple[set[Var], set[Var]]:
    """The buffers that a statement reads or writes, and those among them that it writes."""
    inside = list(walk((stmt,)))
    return {b for s in inside for b in buffers(s)}, {b for s in inside for b in _written(s)}


def _written(stmt: Stmt) -> tuple[Var, ...]:
    if isinstance(stmt, WarpGemm):
        return (stmt.c.buffer,)
    if isinstance(stmt, BlockReduce):
        return (stmt.dst.buffer,)
    if isinstance(stmt, ThreadLoop):
        return ()
    return written(stmt)
