"""The passes over launches whose rows stay in registers, in order."""

from __future__ import annotations

import tilec.backends.cuda.attention.text  # noqa: F401  (registers their text)
from tilec.backends.cuda.attention.assign import AssignStreams
from tilec.backends.cuda.attention.defer_sums import DeferSums
from tilec.backends.cuda.attention.find_masks import FindMasks
from tilec.backends.cuda.attention.overlap_products import OverlapProducts
from tilec.backends.cuda.attention.place_waits import PlaceWaits
from tilec.backends.cuda.attention.rings import PlanTileRings
from tilec.backends.cuda.attention.split_masks import SplitMasks
from tilec.lowering.passes.base import Pass

STREAM_PASSES: tuple[Pass, ...] = (
    AssignStreams(),
    FindMasks(),
    DeferSums(),
    OverlapProducts(),
    SplitMasks(),
    PlanTileRings(),
    PlaceWaits(),
)
