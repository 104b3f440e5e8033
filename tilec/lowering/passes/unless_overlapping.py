"""A pass that does not run on launches whose tensors may overlap.

Passes that join loops or move reads tell tensors apart by name. Where a caller may let two of them share
memory (`T.annotate_restrict_buffers`), a read behind a store has to stay behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import Kernel, Launch, Stmt
from tilec.lowering.analysis.uses import order_counts
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tilec.targets import Target


@dataclass(frozen=True)
class UnlessOverlapping(Pass):
    """``step`` on every launch but those that write a tensor which may overlap another one that they use: it
    tells tensors apart by their names. ``step`` keeps the number of launches."""

    step: Pass

    @property
    def name(self) -> str:
        """That of the step."""
        return self.step.name

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel, with launches in which order counts as they were."""
        made = self.step.apply(kernel, target)
        body = tuple(_kept(old, new) for old, new in zip(kernel.body, made.body, strict=True))
        return replace(made, body=body)


def _kept(old: Stmt, new: Stmt) -> Stmt:
    return old if isinstance(old, Launch) and order_counts(old) else new
