"""The order of passes per target, and the loop that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tilec.backends.cpu.text  # noqa: F401  (registers the text of products)
from tilec.backends.cpu.passes.carry_columns import CarryColumns
from tilec.backends.cpu.passes.forward_operands import ForwardOperands
from tilec.backends.cpu.passes.fuse_elementwise import FuseElementwise
from tilec.backends.cpu.passes.fuse_epilogue import FuseEpilogue
from tilec.backends.cpu.passes.fuse_rows import FuseRows
from tilec.backends.cpu.passes.merge_k_steps import MergeKSteps
from tilec.backends.cpu.passes.merge_panels import MergePanels
from tilec.backends.cpu.passes.pack_operands import PackOperands
from tilec.backends.cpu.passes.place_tiles import PlaceTiles
from tilec.backends.cpu.passes.privatise_tiles import PrivatiseTiles
from tilec.backends.cpu.passes.run_in_order import RunInOrder
from tilec.backends.cpu.passes.select_microkernel import SelectMicrokernel
from tilec.backends.cpu.passes.shrink_rows import ShrinkRows
from tilec.backends.cpu.threads.expand_products import ExpandLaneProducts
from tilec.backends.cpu.threads.threads_to_tiles import ThreadsToTiles
from tilec.backends.cuda.passes.order import CUDA_PASSES
from tilec.backends.cuda.warp_roles.passes import HOPPER_PASSES
from tilec.errors import InputError
from tilec.ir.rules.verifier import verify
from tilec.lowering.analysis.places import explained
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.bound_products import BoundProducts
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.lowering.passes.expand_reduces import ExpandReduces
from tilec.lowering.passes.expand_scans import ExpandScans
from tilec.lowering.passes.expand_sparse import ExpandSparse
from tilec.lowering.passes.overlaps import InOrder
from tilec.lowering.passes.widen_indices import WidenIndices
from tilec.settings import read_settings

if TYPE_CHECKING:
    from tilec.ir.nodes import Kernel
    from tilec.targets import Target

#: Tile IR in, tile IR with nothing but loops, stores, products and placed tiles out.
CPU_PASSES: tuple[Pass, ...] = (
    WidenIndices(),
    ExpandLaneProducts(),
    RunInOrder(),
    ThreadsToTiles(),
    ExpandSparse(),
    BoundProducts(),
    SelectMicrokernel(),
    ForwardOperands(),
    MergePanels(),
    MergeKSteps(),
    InOrder(FuseEpilogue()),
    PackOperands(),
    ExpandReduces(),
    ExpandScans(),
    ExpandCopies(),
    InOrder(FuseElementwise()),
    CarryColumns(),
    PrivatiseTiles(),
    InOrder(FuseRows()),
    ShrinkRows(),
    PlaceTiles(),
)


def passes(target: Target) -> tuple[Pass, ...]:
    """The passes to the form that `to_tir` reads."""
    if target.is_cpu:
        return CPU_PASSES
    return HOPPER_PASSES if target.name == "sm_90a" else CUDA_PASSES


def stages(target: Target) -> tuple[str, ...]:
    """The names that ``until`` of `lower` takes, in order; "tile" is the kernel before all passes."""
    return ("tile", *(step.name for step in passes(target)))


def lower(kernel: Kernel, target: Target, *, until: str | None = None) -> Kernel:
    """``kernel`` after the passes of ``target``; ``until`` names the last one.

    Verified before the first and after the last one, between them too where TILEC_VERIFY is set. InputError
    for an ``until`` that is no stage; IRError when a pass breaks the rules of the IR."""
    if until is not None and until not in stages(target):
        raise InputError(
            f"lowering to {target.name} has no stage {until!r}",
            remedy=f"use one of {', '.join(stages(target))}",
        )
    verify(kernel)
    if until == "tile":
        return kernel
    with explained(kernel):
        return _lowered(kernel, target, until)


def _lowered(kernel: Kernel, target: Target, until: str | None) -> Kernel:
    verify_all = read_settings().verify
    for step in passes(target):
        kernel = step.apply(kernel, target)
        if verify_all:
            verify(kernel)
        if step.name == until:
            break
    verify(kernel)
    return kernel
