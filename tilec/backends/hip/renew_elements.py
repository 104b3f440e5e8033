"""In loops that multiply, where a thread copies many elements one by one, it finds their places anew in every
trip.

The compiler computes addresses that follow from a thread's place once, in front of the loop, and keeps them:
two registers each, for which it spills sums on chips that have few.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.nodes import Anew, ThreadLoop
from tilec.backends.hip.chips import Chip, chip_of
from tilec.backends.hip.products.tiles import WaveGemm
from tilec.ir.nodes import For, Kernel, Launch, Stmt, children, walk, with_children
from tilec.ir.traits import buffers
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

#: Registers of an address.
_WORDS = 2


class RenewElements(Pass):
    """In: loops of trips. Out: on chips with few registers, the bodies of those that multiply in an Anew,
    where addresses of elements that a thread copies from or to tensors would take more than a quarter of its
    registers."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loops."""
        chip = chip_of(target)
        if not chip.has_few_registers:
            return kernel
        return rewrite_launches(
            kernel,
            lambda launch: replace(launch, body=tuple(_renewed(stmt, launch, chip) for stmt in launch.body)),
        )


def _renewed(stmt: Stmt, launch: Launch, chip: Chip) -> Stmt:
    inside = [inner for part in children(stmt) for inner in walk(part)]
    if not any(isinstance(inner, WaveGemm) for inner in inside):
        return stmt
    if isinstance(stmt, For) and any(isinstance(inner, WaveGemm) for inner in stmt.body):
        words = sum(_WORDS * _elements(inner, launch) for inner in inside)
        return replace(stmt, body=(Anew(stmt.body, warp=True),)) if 4 * words > chip.registers else stmt
    return with_children(
        stmt, [tuple(_renewed(inner, launch, chip) for inner in part) for part in children(stmt)]
    )


def _elements(stmt: Stmt, launch: Launch) -> int:
    """How many elements of tensors each thread copies one by one in a loop of threads."""
    if not isinstance(stmt, ThreadLoop) or stmt.vector > 1:
        return 0
    named = {buffer for inner in walk(stmt.body) for buffer in buffers(inner)}
    if not any(buffer.scope() == "global" for buffer in named):
        return 0
    return math.prod(stmt.extents) // thread_count(launch)
