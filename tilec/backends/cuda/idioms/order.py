"""The rules for idioms, in the order in which they run."""

from __future__ import annotations

from tilec.backends.cuda.idioms.choose_values import ChooseValues
from tilec.backends.cuda.idioms.clear_before_loops import ClearBeforeLoops
from tilec.backends.cuda.idioms.copy_boxes import CopyBoxes
from tilec.backends.cuda.idioms.drop_idle_tiles import DropIdleTiles
from tilec.backends.cuda.idioms.follow_sums import FollowSums
from tilec.backends.cuda.idioms.forward_factors import ForwardFactors
from tilec.backends.cuda.idioms.forward_passages import ForwardPassages
from tilec.backends.cuda.idioms.hold_results import HoldResults
from tilec.backends.cuda.idioms.join_first_trips import JoinFirstTrips
from tilec.backends.cuda.idioms.join_nests import JoinNests
from tilec.backends.cuda.idioms.join_trips import JoinTrips
from tilec.backends.cuda.idioms.name_bounds import NameBounds
from tilec.backends.cuda.idioms.open_pairs import OpenPairs
from tilec.backends.cuda.idioms.open_tile_loops import OpenTileLoops
from tilec.backends.cuda.idioms.part_flat_grids import PartFlatGrids
from tilec.backends.cuda.idioms.part_tiles import PartTiles
from tilec.backends.cuda.idioms.pipeline_loads import PipelineLoads
from tilec.backends.cuda.idioms.scale_behind_products import ScaleBehindProducts
from tilec.backends.cuda.idioms.start_from_zero import StartFromZero
from tilec.backends.cuda.idioms.walk_in_bands import WalkInBands
from tilec.lowering.passes.base import Pass

IDIOMS: tuple[Pass, ...] = (
    ForwardPassages(),
    FollowSums(),
    ForwardFactors(),
    JoinFirstTrips(),
    PartTiles(),
    JoinNests(),
    ClearBeforeLoops(),
    StartFromZero(),
    ScaleBehindProducts(),
    CopyBoxes(),
    OpenTileLoops(),
    PartFlatGrids(),
    WalkInBands(),
    DropIdleTiles(),
    HoldResults(),
    PipelineLoads(),
    JoinTrips(),
    NameBounds(),
    ChooseValues(),
    OpenPairs(),
)
