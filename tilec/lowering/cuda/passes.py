"""The order of passes for CUDA targets."""

from __future__ import annotations

from tilec.lowering.cpu.expand_copies import ExpandCopies
from tilec.lowering.cuda.infer_layouts import InferLayouts
from tilec.lowering.cuda.place_shared import PlaceShared
from tilec.lowering.cuda.plan_pipeline import PlanPipeline
from tilec.lowering.cuda.select_instructions import SelectInstructions
from tilec.lowering.cuda.synchronise import Synchronise
from tilec.lowering.passes import Pass

#: Tile IR in; tile IR whose statements are threads' loops, warps' products, copies and barriers out.
CUDA_PASSES: tuple[Pass, ...] = (
    PlanPipeline(),
    SelectInstructions(),
    ExpandCopies(),
    InferLayouts(),
    Synchronise(),
    PlaceShared(),
)
