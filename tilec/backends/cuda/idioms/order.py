"""The rules for idioms, in the order in which they run."""

from __future__ import annotations

from tilec.backends.cuda.idioms.elements.choose_values import ChooseValues
from tilec.backends.cuda.idioms.elements.follow_sums import FollowSums
from tilec.backends.cuda.idioms.elements.name_bounds import NameBounds
from tilec.backends.cuda.idioms.elements.open_pairs import OpenPairs
from tilec.backends.cuda.idioms.grids.open_tile_loops import OpenTileLoops
from tilec.backends.cuda.idioms.grids.part_flat_grids import PartFlatGrids
from tilec.backends.cuda.idioms.grids.walk_in_bands import WalkInBands
from tilec.backends.cuda.idioms.sums.clear_before_loops import ClearBeforeLoops
from tilec.backends.cuda.idioms.sums.forward_factors import ForwardFactors
from tilec.backends.cuda.idioms.sums.scale_behind_products import ScaleBehindProducts
from tilec.backends.cuda.idioms.sums.start_from_zero import StartFromZero
from tilec.backends.cuda.idioms.tiles.copy_boxes import CopyBoxes
from tilec.backends.cuda.idioms.tiles.drop_idle_tiles import DropIdleTiles
from tilec.backends.cuda.idioms.tiles.forward_passages import ForwardPassages
from tilec.backends.cuda.idioms.tiles.hold_results import HoldResults
from tilec.backends.cuda.idioms.tiles.part_tiles import PartTiles
from tilec.backends.cuda.idioms.trips.join_first_trips import JoinFirstTrips
from tilec.backends.cuda.idioms.trips.join_nests import JoinNests
from tilec.backends.cuda.idioms.trips.join_trips import JoinTrips
from tilec.backends.cuda.idioms.trips.pipeline_loads import PipelineLoads
from tilec.backends.cuda.passes.products.clear_at_begin import ClearAtBegin
from tilec.backends.cuda.passes.products.clear_in_products import ClearInProducts
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
    ClearAtBegin(),
    ClearInProducts(),
    NameBounds(),
    ChooseValues(),
    OpenPairs(),
)
