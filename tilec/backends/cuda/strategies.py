"""The strategies for launches whose warps have roles, and the order of passes for the GPUs that have them."""

from __future__ import annotations

from tilec.backends.cuda.attention.strategy import Attention
from tilec.backends.cuda.idioms.grids.part_tile_loops import PartTileLoops
from tilec.backends.cuda.idioms.grids.skip_idle_blocks import SkipIdleBlocks
from tilec.backends.cuda.idioms.order import IDIOMS
from tilec.backends.cuda.idioms.sums.mask_behind_products import MaskBehindProducts
from tilec.backends.cuda.idioms.tiles.drop_unread_fills import DropUnreadFills
from tilec.backends.cuda.idioms.tiles.part_tiles import PartTiles
from tilec.backends.cuda.idioms.tiles.read_tables import ReadTables
from tilec.backends.cuda.matmul.strategy import Matmul
from tilec.backends.cuda.packed_weights.strategy import PackedWeights
from tilec.backends.cuda.passes.loads.join_parts import JoinParts
from tilec.backends.cuda.passes.loads.open_multicasts import OpenMulticasts
from tilec.backends.cuda.passes.loads.run_ahead import RunAhead
from tilec.backends.cuda.passes.loops.fuse_exponents import FuseExponents
from tilec.backends.cuda.passes.order import CUDA_PASSES, OPENING
from tilec.backends.cuda.passes.products.align_operands import AlignOperands
from tilec.backends.cuda.passes.products.clear_at_begin import ClearAtBegin
from tilec.backends.cuda.passes.products.clear_in_products import ClearInProducts
from tilec.backends.cuda.passes.products.fit_threads import FitThreads
from tilec.backends.cuda.passes.products.fold_rows import FoldRows
from tilec.backends.cuda.passes.products.pad_tiles import PadTiles
from tilec.backends.cuda.passes.products.read_turned_tiles import ReadTurnedTiles
from tilec.backends.cuda.passes.products.split_axes import SplitAxes
from tilec.backends.cuda.passes.products.spread_depth import SpreadDepth
from tilec.backends.cuda.passes.threads.grid_barriers import OpenGridBarriers
from tilec.backends.cuda.passes.threads.spell_names import SpellNames
from tilec.backends.cuda.statement_roles.boxes.arriving_copies import ArrivingCopies
from tilec.backends.cuda.statement_roles.boxes.bring_boxes import BringBoxes
from tilec.backends.cuda.statement_roles.boxes.store_boxes import StoreBoxes
from tilec.backends.cuda.statement_roles.boxes.widen_places import WidenPlaces
from tilec.backends.cuda.statement_roles.operands.alternate_operands import AlternateOperands
from tilec.backends.cuda.statement_roles.operands.drop_repeated_axes import DropRepeatedAxes
from tilec.backends.cuda.statement_roles.operands.hold_operands import HoldOperands
from tilec.backends.cuda.statement_roles.operands.issue_side_by_side import IssueSideBySide
from tilec.backends.cuda.statement_roles.operands.join_second_operands import JoinSecondOperands
from tilec.backends.cuda.statement_roles.operands.make_in_steps import MakeInSteps
from tilec.backends.cuda.statement_roles.operands.turn_few_rows import TurnFewRows
from tilec.backends.cuda.statement_roles.operands.turn_products import TurnProducts
from tilec.backends.cuda.statement_roles.operands.turn_tiles import TurnTiles
from tilec.backends.cuda.statement_roles.split.join_tiles import JoinTiles
from tilec.backends.cuda.statement_roles.split.split_roles import SplitRoles
from tilec.backends.cuda.statement_roles.tensor_memory.alternate_sums import AlternateSums
from tilec.backends.cuda.statement_roles.tensor_memory.hold_sums import HoldSums
from tilec.backends.cuda.statement_roles.tensor_memory.pair_sums import PairSums
from tilec.backends.cuda.statement_roles.trips.fetch_rows import FetchRows
from tilec.backends.cuda.statement_roles.trips.hold_more_blocks import HoldMoreBlocks
from tilec.backends.cuda.statement_roles.trips.hold_two_blocks import HoldTwoBlocks
from tilec.backends.cuda.statement_roles.trips.issue_ahead import IssueAhead
from tilec.backends.cuda.statement_roles.trips.pair_trips import PairTrips
from tilec.backends.cuda.statement_roles.trips.read_early import ReadEarly
from tilec.backends.cuda.statement_roles.trips.read_for_results import ReadForResults
from tilec.backends.cuda.statement_roles.trips.renew_places import RenewPlaces
from tilec.backends.cuda.statement_roles.trips.rotate_trips import RotateTrips
from tilec.backends.cuda.statement_roles.trips.settle_branches import SettleBranches
from tilec.backends.cuda.statement_roles.trips.split_trips import SplitTrips
from tilec.backends.cuda.statement_roles.trips.sum_behind_loops import SumBehindLoops
from tilec.backends.cuda.statement_roles.turns.take_turns import TakeTurns
from tilec.backends.cuda.warp_roles.strategy import AssignRoles, Strategy
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.widen_indices import WidenIndices

#: The first one that takes a launch has it; where none does the first reason is the one that is told.
STRATEGIES: tuple[Strategy, ...] = (PackedWeights(), Matmul(), Attention())

#: What all launches go through first, and what comes last: the other passes of GPUs without roles.
_FIRST: tuple[Pass, ...] = (WidenIndices(), SpellNames(), OpenGridBarriers(), FuseExponents())
_LAST: tuple[Pass, ...] = tuple(step for step in CUDA_PASSES if step not in (*OPENING, *_FIRST))

#: Warps load what they multiply, by cp.async.
PLAIN_PASSES: tuple[Pass, ...] = (
    *OPENING,
    SplitAxes(),
    PadTiles(),
    FitThreads(),
    AlignOperands(),
    *_FIRST,
    *_LAST,
)

#: Launches get the roles that their statements tell; warps multiply by mma.sync.
TMA_PASSES: tuple[Pass, ...] = (
    *OPENING,
    SplitAxes(),
    PadTiles(),
    FitThreads(),
    AlignOperands(),
    *_FIRST,
    PairSums(),
    JoinParts(boxes=True),
    WidenPlaces(),
    SplitRoles(),
    HoldSums(),
    AlternateSums(),
    ArrivingCopies(),
    BringBoxes(),
    StoreBoxes(),
    RunAhead(),
    *_LAST,
)

#: Launches that fit get the roles of a strategy, others those that their statements tell.
HOPPER_PASSES: tuple[Pass, ...] = (
    *OPENING,
    SplitAxes(),
    PadTiles(),
    FitThreads(),
    SpreadDepth(),
    FoldRows(),
    AlignOperands(),
    *_FIRST,
    ReadTurnedTiles(),
    ClearAtBegin(),
    ClearInProducts(),
    DropUnreadFills(),
    ReadTables(),
    MaskBehindProducts(),
    SkipIdleBlocks(),
    DropRepeatedAxes(),
    OpenMulticasts(),
    PartTileLoops(),
    AssignRoles(STRATEGIES, IDIOMS),
    *(step for strategy in STRATEGIES for step in strategy.passes),
    JoinSecondOperands(),
    TurnFewRows(),
    TurnTiles(),
    JoinTiles(),
    JoinParts(boxes=True),
    PartTiles(),
    WidenPlaces(),
    SplitRoles(),
    TakeTurns(),
    SettleBranches(),
    SumBehindLoops(),
    IssueAhead(),
    RotateTrips(),
    ReadEarly(),
    TurnProducts(),
    HoldOperands(),
    FetchRows(),
    ReadForResults(),
    MakeInSteps(),
    PairTrips(),
    AlternateOperands(),
    SplitTrips(),
    ArrivingCopies(),
    BringBoxes(),
    StoreBoxes(),
    RunAhead(),
    *_LAST,
    HoldTwoBlocks(),
    HoldMoreBlocks(),
    RenewPlaces(),
    IssueSideBySide(),
)
