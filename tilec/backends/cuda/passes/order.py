"""The order of passes for CUDA targets."""

from __future__ import annotations

from tilec.backends.cuda.analysis.mma import scaled_loss
from tilec.backends.cuda.general.store_parts import StoreParts
from tilec.backends.cuda.idioms.drop_idle_tiles import DropIdleTiles
from tilec.backends.cuda.passes.ask_ahead import AskAhead
from tilec.backends.cuda.passes.bind_headers import BindHeaders
from tilec.backends.cuda.passes.bring_operands import BringOperands
from tilec.backends.cuda.passes.defer_reductions import DeferReductions
from tilec.backends.cuda.passes.fence_proxies import FenceProxies
from tilec.backends.cuda.passes.fence_reads import FenceReads
from tilec.backends.cuda.passes.forward_stores import ForwardStores
from tilec.backends.cuda.passes.fuse_exponents import FuseExponents
from tilec.backends.cuda.passes.grid_barriers import OpenGridBarriers
from tilec.backends.cuda.passes.hoist_passages import HoistPassages
from tilec.backends.cuda.passes.hoist_trips import HoistTrips
from tilec.backends.cuda.passes.hold_elements import HoldElements
from tilec.backends.cuda.passes.hold_rows import HoldRows
from tilec.backends.cuda.passes.hold_turned import HoldTurned
from tilec.backends.cuda.passes.infer_layouts import InferLayouts
from tilec.backends.cuda.passes.join_parts import JoinParts
from tilec.backends.cuda.passes.lower_threads import LowerThreads
from tilec.backends.cuda.passes.move_runs import MoveRuns
from tilec.backends.cuda.passes.name_quotients import NameQuotients
from tilec.backends.cuda.passes.open_barriers import OpenBarriers
from tilec.backends.cuda.passes.pair_rows import PairRows
from tilec.backends.cuda.passes.part_additions import PartAdditions
from tilec.backends.cuda.passes.part_branches import PartBranches
from tilec.backends.cuda.passes.part_ends import PartEnds
from tilec.backends.cuda.passes.part_quotients import PartQuotients
from tilec.backends.cuda.passes.part_totals import PartTotals
from tilec.backends.cuda.passes.place_drains import PlaceDrains
from tilec.backends.cuda.passes.place_product_waits import PlaceProductWaits
from tilec.backends.cuda.passes.place_shared import PlaceShared
from tilec.backends.cuda.passes.plan_pipeline import PlanPipeline
from tilec.backends.cuda.passes.private_copies import PrivateCopies
from tilec.backends.cuda.passes.read_ahead import ReadAhead
from tilec.backends.cuda.passes.reduce_accumulations import ReduceAccumulations
from tilec.backends.cuda.passes.relax_additions import RelaxAdditions
from tilec.backends.cuda.passes.rotate_products import RotateProducts
from tilec.backends.cuda.passes.select_instructions import SelectInstructions
from tilec.backends.cuda.passes.send_to_all import SendToAll
from tilec.backends.cuda.passes.serialise_collisions import SerialiseCollisions
from tilec.backends.cuda.passes.share_registers import ShareRegisters
from tilec.backends.cuda.passes.shift_columns import ShiftColumns
from tilec.backends.cuda.passes.spell_names import SpellNames
from tilec.backends.cuda.passes.split_branches import SplitBranches
from tilec.backends.cuda.passes.split_loops import SplitLoops
from tilec.backends.cuda.passes.split_pairs import SplitPairs
from tilec.backends.cuda.passes.split_rows import SplitRows
from tilec.backends.cuda.passes.spread_banks import SpreadBanks
from tilec.backends.cuda.passes.spread_scans import SpreadScans
from tilec.backends.cuda.passes.spread_trips import SpreadTrips
from tilec.backends.cuda.passes.stage_stores import StageStores
from tilec.backends.cuda.passes.start_copies import StartCopies
from tilec.backends.cuda.passes.synchronise import Synchronise
from tilec.backends.cuda.passes.turn_stores import TurnStores
from tilec.backends.cuda.passes.unroll_columns import UnrollColumns
from tilec.backends.cuda.passes.vectorise_threads import VectoriseThreads
from tilec.backends.cuda.passes.write_out_parts import WriteOutParts
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.bound_products import BoundProducts
from tilec.lowering.passes.choose_stores import ChooseStores
from tilec.lowering.passes.cut_loops import CutLoops
from tilec.lowering.passes.drop_proven_tests import DropProvenTests
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.lowering.passes.expand_scaled import ExpandScaled
from tilec.lowering.passes.give_axes import GiveAxes
from tilec.lowering.passes.name_settled import NameSettled
from tilec.lowering.passes.name_variables import NameVariables
from tilec.lowering.passes.swap_tiles import SwapTiles
from tilec.lowering.passes.widen_indices import WidenIndices

#: What all launches go through before any roles are looked for.
OPENING: tuple[Pass, ...] = (
    GiveAxes(),
    ExpandScaled(scaled_loss),
    SplitRows(),
    NameVariables(),
    NameSettled(),
    WriteOutParts(),
    CutLoops(),
    DropProvenTests(),
    ChooseStores(),
    SwapTiles(scopes=("shared.dyn",)),
    ForwardStores(),
    SpreadTrips(),
    HoldElements(),
    PartAdditions(),
)
#: Tile IR in; tile IR whose statements are threads' loops, warps' products, copies and barriers out.
CUDA_PASSES: tuple[Pass, ...] = (
    *OPENING,
    WidenIndices(),
    SpellNames(),
    OpenGridBarriers(),
    FuseExponents(),
    LowerThreads(),
    SplitBranches(),
    VectoriseThreads(),
    ShareRegisters(),
    SendToAll(),
    OpenBarriers(),
    BoundProducts(),
    PrivateCopies(),
    BindHeaders(),
    StartCopies(),
    JoinParts(),
    PartBranches(),
    PlanPipeline(),
    SelectInstructions(),
    BringOperands(),
    SpreadScans(),
    ExpandCopies(),
    PartQuotients(),
    NameQuotients(),
    SplitLoops(),
    HoistTrips(),
    MoveRuns(),
    UnrollColumns(),
    SplitPairs(),
    ReduceAccumulations(),
    PartTotals(),
    SerialiseCollisions(),
    RelaxAdditions(),
    StageStores(),
    TurnStores(),
    HoldTurned(),
    AskAhead(),
    HoldRows(),
    ShiftColumns(),
    PartEnds(),
    PairRows(),
    InferLayouts(),
    DeferReductions(),
    ReadAhead(),
    HoistPassages(),
    SpreadBanks(),
    StoreParts(),
    DropIdleTiles(),
    PlaceShared(),
    PlaceProductWaits(),
    Synchronise(),
    PlaceDrains(),
    FenceProxies(),
    FenceReads(),
    RotateProducts(),
)
