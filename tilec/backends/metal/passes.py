"""The order of passes for Metal: those of CUDA, whose steps ask the target what it has, with products of
simdgroups in place of those of warps."""

from __future__ import annotations

import tilec.backends.metal.products.emit  # noqa: F401  (registers the code of products)
from tilec.backends.cuda.passes.loads.hold_ahead import HoldAhead
from tilec.backends.cuda.passes.loads.plan_pipeline import PlanPipeline
from tilec.backends.cuda.passes.order import CUDA_PASSES
from tilec.backends.cuda.passes.products.rotate_products import RotateProducts
from tilec.backends.cuda.passes.products.select_instructions import SelectInstructions
from tilec.backends.cuda.passes.threads.narrow_barriers import NarrowBarriers
from tilec.backends.cuda.passes.threads.split_branches import SplitBranches
from tilec.backends.cuda.passes.waits.synchronise import Synchronise
from tilec.backends.metal.devices import registers_of
from tilec.backends.metal.products.tiles import SimdMatrices
from tilec.lowering.passes.base import Pass

#: Instead of a pass of CUDA's.
_INSTEAD: dict[type[Pass], Pass] = {
    PlanPipeline: HoldAhead(registers_of),
    SelectInstructions: SelectInstructions(SimdMatrices()),
    RotateProducts: NarrowBarriers(),
    SplitBranches: SplitBranches(whole_warps=True),
    Synchronise: Synchronise(whole_warps=True),
}
#: Tile IR in; tile IR whose statements are threads' loops, simdgroups' products, copies and barriers out.
METAL_PASSES: tuple[Pass, ...] = tuple(_INSTEAD.get(type(each), each) for each in CUDA_PASSES)
