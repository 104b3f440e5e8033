"""Index arithmetic in as many bits as it needs: 64 where ranges of dims and loops show that 32 may not do.

row = first + k * 8 + i    ->    row = int64(first) + int64(k) * 8 + int64(i)        (first: any int32)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.analysis.numbers.widen import widened
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target


@dataclass(frozen=True)
class WidenIndices(Pass):
    """In: arithmetic on dims and indices in int32, meant as that of whole numbers. Out: 64 bits where it may
    leave 32; launches with products may state what calls have to fulfil instead
    (`tilec.ir.analysis.numbers.widen`). ``wide_sums``: the compiler behind is told that sums do not wrap
    around."""

    wide_sums: bool = False

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with wide indices."""
        return widened(kernel, may_refuse=True, wide_sums=self.wide_sums)
