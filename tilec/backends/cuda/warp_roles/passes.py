"""The order of passes for sm_90a."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import tilec.backends.cuda.warp_roles.text  # noqa: F401  (registers their text)
from tilec.backends.cuda.attention.assign import AssignStreams
from tilec.backends.cuda.attention.passes import STREAM_PASSES
from tilec.backends.cuda.attention.rewriting import streamed
from tilec.backends.cuda.matmul.assign_warps import AssignWarps, specialised
from tilec.backends.cuda.matmul.select_tma import SelectTma
from tilec.backends.cuda.matmul.select_wgmma import SelectWgmma
from tilec.backends.cuda.matmul.swap_operands import SwapOperands
from tilec.backends.cuda.packed_weights.assign import AssignConversions, converted
from tilec.backends.cuda.passes.grid_barriers import OpenGridBarriers
from tilec.backends.cuda.passes.order import CUDA_PASSES
from tilec.backends.cuda.warp_roles.plain_groups import PlainGroups
from tilec.backends.cuda.warp_roles.ring import PlanRing
from tilec.backends.cuda.warp_roles.unfit import Unfit, without_roles
from tilec.ir.nodes import Kernel, Launch, Stmt
from tilec.ir.options import NO_ROLES
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.widen_indices import WidenIndices

if TYPE_CHECKING:
    from tilec.targets import Target


@dataclass(frozen=True)
class OtherLaunches:
    """``step`` over the launches whose warps have no roles; the others stay as they are."""

    step: Pass

    @property
    def name(self) -> str:
        """That of the step."""
        return self.step.name

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel after the step."""
        if not any(_has_roles(stmt) for stmt in kernel.body):
            return self.step.apply(kernel, target)
        others = replace(kernel, body=tuple(stmt for stmt in kernel.body if not _has_roles(stmt)))
        made = self.step.apply(others, target)
        assert len(made.body) == len(others.body), "passes keep the statements around launches"
        rest = iter(made.body)
        return replace(made, body=tuple(stmt if _has_roles(stmt) else next(rest) for stmt in kernel.body))


@dataclass(frozen=True)
class WhereAllowed:
    """``step`` over kernels that no pass config keeps from having warp roles; launches of others say why they
    have none."""

    step: Pass

    @property
    def name(self) -> str:
        """That of the step."""
        return self.step.name

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel after the step, or with the reason."""
        against = kernel.option(NO_ROLES)
        if against is None:
            return self.step.apply(kernel, target)
        forbidden = Unfit(f"the pass config {against} is set", remedy=f"leave {against} out")
        return rewrite_launches(kernel, lambda launch: without_roles(launch, forbidden))


def _has_roles(stmt: Stmt) -> bool:
    return isinstance(stmt, Launch) and (specialised(stmt) or converted(stmt) or streamed(stmt)) is not None


#: What all launches go through first.
_FIRST: tuple[Pass, ...] = (WidenIndices(), OpenGridBarriers())

#: Launches that fit get roles; all others go the way of older GPUs.
HOPPER_PASSES: tuple[Pass, ...] = (
    *_FIRST,
    WhereAllowed(PlainGroups()),
    WhereAllowed(AssignConversions()),
    WhereAllowed(SwapOperands()),
    WhereAllowed(AssignWarps()),
    PlanRing(),
    SelectTma(),
    SelectWgmma(),
    *(WhereAllowed(step) if isinstance(step, AssignStreams) else step for step in STREAM_PASSES),
    *(OtherLaunches(step) for step in CUDA_PASSES if step not in _FIRST),
)
