"""Thread-level code as loops over threads, so that the rest of the pipeline sees tile statements alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cpu.threads.agreed_values import refuse_differing
from tilec.backends.cpu.threads.common_work import alone
from tilec.backends.cpu.threads.few_trips import with_few_trips
from tilec.backends.cpu.threads.kept_values import Kept
from tilec.backends.cpu.threads.split_at_meetings import Splitter
from tilec.backends.cpu.threads.spread_runs import spread_runs
from tilec.backends.cpu.threads.write_plan import Emitter
from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.analysis.threads.repeated import repeated
from tilec.ir.analysis.threads.returns import without_return
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.places import place_of
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target


class ThreadsToTiles(Pass):
    """In: launches, some with thread-level code. Out: launches without thread indices. What threads do
    between two places where they meet is a Parallel over them; storage and names that they need behind such a
    place have an element per thread; barriers are gone. UnsupportedError where threads meet that do not all
    come there, or where an effect would be that of all threads at once."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every such launch rewritten."""
        if not any(launch.thread_vars for launch in kernel.launches):
            return kernel
        return rewrite_launches(kernel, _rewritten)


def _rewritten(launch: Launch) -> Launch:
    if not launch.thread_vars:
        return launch
    launch = replace(launch, body=with_few_trips(without_return(launch.body)))
    uniform = Uniformity(launch)
    body = _once(launch.body, uniform)
    splitter = Splitter(launch, body, uniform)
    if splitter.grid.count > 1:
        refuse_repeated(body, uniform)
        refuse_differing(launch)
    plan, widths = spread_runs(splitter.plan(body), splitter.grid, uniform, splitter.pure)
    kept = Kept(plan, splitter.grid, splitter.pure, splitter.values, widths)
    return replace(launch, body=Emitter(kept).block(plan), thread_vars=())


def _once(block: ir.Block, uniform: Uniformity) -> ir.Block:
    """A block whose stores of one value to an element of a fragment, which all threads make together, are
    loops of one iteration."""
    return tuple(alone(stmt) if _is_common(stmt, uniform) else _inside(stmt, uniform) for stmt in block)


def _inside(stmt: ir.Stmt, uniform: Uniformity) -> ir.Stmt:
    if isinstance(stmt, ir.Parallel):
        return stmt
    return ir.with_children(stmt, [_once(inner, uniform) for inner in ir.children(stmt)])


def _is_common(stmt: ir.Stmt, uniform: Uniformity) -> bool:
    if not isinstance(stmt, ir.Store) or stmt.buffer.scope() != "local.fragment":
        return False
    return not uniform.varies(stmt.value, *stmt.indices)


# ---- effects of all threads of a block in one place, where a block is one task ----


def refuse_repeated(body: ir.Block, uniform: Uniformity) -> None:
    """Raises UnsupportedError for an update of shared or global memory that says nothing of the thread."""
    for stmt in repeated(body, uniform):
        raise UnsupportedError(
            f"{stmt.buffer.name} is updated by each thread of the block",
            place=place_of(stmt),
            why="the statement stands outside of T.Parallel: the thread count multiplies its effect",
            remedy="put it in T.Parallel (of extent 1 for a single update), or under `if tx == 0`",
        )
