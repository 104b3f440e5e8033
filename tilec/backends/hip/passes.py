"""The order of passes for AMD targets: those of CUDA, whose steps ask the target what it has, with products
of waves in place of those of warps."""

from __future__ import annotations

import tilec.backends.cuda.statement_roles.trips.renew_places
import tilec.backends.hip.copies.emit
import tilec.backends.hip.products.emit
import tilec.backends.hip.products.scaled  # noqa: F401  (registers the code of products)
from tilec.backends.cuda.passes.loads.hold_ahead import HoldAhead
from tilec.backends.cuda.passes.loads.plan_pipeline import PlanPipeline
from tilec.backends.cuda.passes.order import CUDA_PASSES
from tilec.backends.cuda.passes.products.rotate_products import RotateProducts
from tilec.backends.cuda.passes.products.select_instructions import SelectInstructions
from tilec.backends.cuda.passes.threads.narrow_barriers import NarrowBarriers
from tilec.backends.hip.chips import registers_of
from tilec.backends.hip.copies.copy_straight import CopyStraight
from tilec.backends.hip.products.scale_sums import ScaleSums
from tilec.backends.hip.products.scales import scaled_loss
from tilec.backends.hip.products.tiles import WaveMatrices
from tilec.backends.hip.renew_elements import RenewElements
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.expand_scaled import ExpandScaled

#: Instead of a pass of CUDA's.
_INSTEAD: dict[type[Pass], tuple[Pass, ...]] = {
    ExpandScaled: (ExpandScaled(scaled_loss),),
    PlanPipeline: (CopyStraight(), HoldAhead(registers_of)),
    SelectInstructions: (SelectInstructions(WaveMatrices()), ScaleSums()),
    RotateProducts: (NarrowBarriers(),),
}
#: Tile IR in; tile IR whose statements are threads' loops, waves' products, copies and barriers out.
HIP_PASSES: tuple[Pass, ...] = (
    *(found for each in CUDA_PASSES for found in _INSTEAD.get(type(each), (each,))),
    RenewElements(),
)
