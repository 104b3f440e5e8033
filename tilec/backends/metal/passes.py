"""The order of passes for Metal: those of CUDA, whose steps ask the target what it has, with products of
simdgroups in place of those of warps."""

from __future__ import annotations

import tilec.backends.metal.products.emit  # noqa: F401  (registers the code of products)
from tilec.backends.cuda.passes.order import CUDA_PASSES
from tilec.backends.cuda.passes.plan_pipeline import PlanPipeline
from tilec.backends.cuda.passes.rotate_products import RotateProducts
from tilec.backends.cuda.passes.select_instructions import SelectInstructions
from tilec.backends.metal.products.tiles import SimdMatrices
from tilec.lowering.passes.base import Pass

#: Instead of a pass of CUDA's; None leaves it out.
_INSTEAD: dict[type[Pass], Pass | None] = {
    PlanPipeline: PlanPipeline(has_async=False),
    SelectInstructions: SelectInstructions(SimdMatrices()),
    RotateProducts: None,
}
#: Tile IR in; tile IR whose statements are threads' loops, simdgroups' products, copies and barriers out.
METAL_PASSES: tuple[Pass, ...] = tuple(
    found for each in CUDA_PASSES if (found := _INSTEAD.get(type(each), each)) is not None
)
