"""Groups of threads that wait for each other run in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.analysis.threads.in_order import in_order
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


class RunInOrder(Pass):
    """In: groups and barriers. Out: neither; the statements of groups stand in an order in which none waits
    for a later one. UnsupportedError where there is no such order."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without groups and barriers."""
        return in_order(kernel)
