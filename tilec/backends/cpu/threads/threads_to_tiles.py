"""Thread-level code as loops over threads, so that the rest of the pipeline sees tile statements alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cpu.threads.agreed_values import refuse_differing
from tilec.backends.cpu.threads.kept_values import Kept
from tilec.backends.cpu.threads.repeated_effects import refuse_repeated
from tilec.backends.cpu.threads.split_at_meetings import Splitter
from tilec.backends.cpu.threads.write_plan import Emitter
from tilec.ir.analysis.returns import without_return
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
    body = without_return(launch.body)
    splitter = Splitter(launch, body)
    if splitter.grid.count > 1:
        refuse_repeated(body, splitter.uniform)
        refuse_differing(launch)
    plan = splitter.plan(body)
    kept = Kept(plan, splitter.grid, splitter.pure, splitter.values)
    return replace(launch, body=Emitter(kept).block(plan), thread_vars=())
