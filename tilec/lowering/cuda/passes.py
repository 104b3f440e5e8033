"""The order of passes for CUDA targets."""

from __future__ import annotations

import tilec.lowering.cuda.print_statements  # noqa: F401  (registers the text of statements)
from tilec.lowering.bound_products import BoundProducts
from tilec.lowering.cuda.bind_headers import BindHeaders
from tilec.lowering.cuda.grid_barriers import OpenGridBarriers
from tilec.lowering.cuda.infer_layouts import InferLayouts
from tilec.lowering.cuda.lower_threads import LowerThreads
from tilec.lowering.cuda.open_barriers import OpenBarriers
from tilec.lowering.cuda.place_shared import PlaceShared
from tilec.lowering.cuda.plan_pipeline import PlanPipeline
from tilec.lowering.cuda.private_copies import PrivateCopies
from tilec.lowering.cuda.reduce_accumulations import ReduceAccumulations
from tilec.lowering.cuda.rotate_products import RotateProducts
from tilec.lowering.cuda.select_instructions import SelectInstructions
from tilec.lowering.cuda.serialise_collisions import SerialiseCollisions
from tilec.lowering.cuda.split_loops import SplitLoops
from tilec.lowering.cuda.spread_scans import SpreadScans
from tilec.lowering.cuda.stage_stores import StageStores
from tilec.lowering.cuda.synchronise import Synchronise
from tilec.lowering.cuda.vectorise_threads import VectoriseThreads
from tilec.lowering.expand_copies import ExpandCopies
from tilec.lowering.passes import Pass
from tilec.lowering.widen_indices import WidenIndices

#: Tile IR in; tile IR whose statements are threads' loops, warps' products, copies and barriers out.
CUDA_PASSES: tuple[Pass, ...] = (
    WidenIndices(),
    OpenGridBarriers(),
    LowerThreads(),
    VectoriseThreads(),
    OpenBarriers(),
    BoundProducts(),
    PrivateCopies(),
    BindHeaders(),
    PlanPipeline(),
    SelectInstructions(),
    SpreadScans(),
    ExpandCopies(),
    SplitLoops(),
    ReduceAccumulations(),
    SerialiseCollisions(),
    StageStores(),
    InferLayouts(),
    PlaceShared(),
    Synchronise(),
    RotateProducts(),
)
