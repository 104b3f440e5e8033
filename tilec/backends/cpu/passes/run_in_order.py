"""Groups of threads that wait for each other run in turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.analysis.in_order import in_order

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


@dataclass(frozen=True)
class RunInOrder:
    """In: groups and barriers. Out: neither; the statements of groups stand in an order in which none waits
    for a later one. UnsupportedError where there is no such order."""

    name: str = "run_in_order"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without groups and barriers."""
        return in_order(kernel)
