"""The passes over launches whose rows stay in registers, in order."""

from __future__ import annotations

import tilec.lowering.cuda.hopper.streams.print_statements  # noqa: F401  (registers their text)
from tilec.lowering.cuda.hopper.streams.assign import AssignStreams
from tilec.lowering.cuda.hopper.streams.defer_sums import DeferSums
from tilec.lowering.cuda.hopper.streams.find_masks import FindMasks
from tilec.lowering.cuda.hopper.streams.overlap_products import OverlapProducts
from tilec.lowering.cuda.hopper.streams.place_waits import PlaceWaits
from tilec.lowering.cuda.hopper.streams.rings import PlanTileRings
from tilec.lowering.cuda.hopper.streams.split_masks import SplitMasks
from tilec.lowering.passes import Pass

STREAM_PASSES: tuple[Pass, ...] = (
    AssignStreams(),
    FindMasks(),
    DeferSums(),
    OverlapProducts(),
    SplitMasks(),
    PlanTileRings(),
    PlaceWaits(),
)
