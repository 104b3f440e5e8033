"""The order of passes for CUDA targets."""

from __future__ import annotations

from tilec.backends.cuda.analysis.products.mma import scaled_loss
from tilec.backends.cuda.idioms.elements.look_up_codes import LookUpCodes
from tilec.backends.cuda.idioms.tiles.drop_idle_tiles import DropIdleTiles
from tilec.backends.cuda.idioms.trips.fold_rings import FoldRings
from tilec.backends.cuda.idioms.trips.number_stages import NumberStages
from tilec.backends.cuda.passes.layouts.hoist_passages import HoistPassages
from tilec.backends.cuda.passes.layouts.infer_layouts import InferLayouts
from tilec.backends.cuda.passes.layouts.read_ahead import ReadAhead
from tilec.backends.cuda.passes.layouts.spread_banks import SpreadBanks
from tilec.backends.cuda.passes.layouts.turn_tensors import TurnTensors
from tilec.backends.cuda.passes.loads.join_parts import JoinParts
from tilec.backends.cuda.passes.loads.part_branches import PartBranches
from tilec.backends.cuda.passes.loads.part_loads import PartLoads
from tilec.backends.cuda.passes.loads.plan_pipeline import PlanPipeline
from tilec.backends.cuda.passes.loads.send_to_all import SendToAll
from tilec.backends.cuda.passes.loads.split_rows import SplitRows
from tilec.backends.cuda.passes.loads.stage_reads import StageReads
from tilec.backends.cuda.passes.loads.start_copies import StartCopies
from tilec.backends.cuda.passes.loops.ask_ahead import AskAhead
from tilec.backends.cuda.passes.loops.forward_stores import ForwardStores
from tilec.backends.cuda.passes.loops.fuse_exponents import FuseExponents
from tilec.backends.cuda.passes.loops.hoist_trips import HoistTrips
from tilec.backends.cuda.passes.loops.hold_elements import HoldElements
from tilec.backends.cuda.passes.loops.hold_rows import HoldRows
from tilec.backends.cuda.passes.loops.hold_turned import HoldTurned
from tilec.backends.cuda.passes.loops.move_runs import MoveRuns
from tilec.backends.cuda.passes.loops.name_quotients import NameQuotients
from tilec.backends.cuda.passes.loops.part_ends import PartEnds
from tilec.backends.cuda.passes.loops.part_quotients import PartQuotients
from tilec.backends.cuda.passes.loops.shift_columns import ShiftColumns
from tilec.backends.cuda.passes.loops.split_loops import SplitLoops
from tilec.backends.cuda.passes.loops.split_pairs import SplitPairs
from tilec.backends.cuda.passes.loops.spread_trips import SpreadTrips
from tilec.backends.cuda.passes.loops.stage_stores import StageStores
from tilec.backends.cuda.passes.loops.turn_stores import TurnStores
from tilec.backends.cuda.passes.loops.unroll_columns import UnrollColumns
from tilec.backends.cuda.passes.loops.write_out_parts import WriteOutParts
from tilec.backends.cuda.passes.loops.write_out_trips import WriteOutTrips
from tilec.backends.cuda.passes.products.bring_operands import BringOperands
from tilec.backends.cuda.passes.products.pair_rows import PairRows
from tilec.backends.cuda.passes.products.part_operands import PartOperands
from tilec.backends.cuda.passes.products.rotate_products import RotateProducts
from tilec.backends.cuda.passes.products.select_instructions import SelectInstructions
from tilec.backends.cuda.passes.sums.defer_reductions import DeferReductions
from tilec.backends.cuda.passes.sums.join_lanes import JoinLanes
from tilec.backends.cuda.passes.sums.part_additions import PartAdditions
from tilec.backends.cuda.passes.sums.part_totals import PartTotals
from tilec.backends.cuda.passes.sums.reduce_accumulations import ReduceAccumulations
from tilec.backends.cuda.passes.sums.relax_additions import RelaxAdditions
from tilec.backends.cuda.passes.sums.serialise_collisions import SerialiseCollisions
from tilec.backends.cuda.passes.sums.spread_scans import SpreadScans
from tilec.backends.cuda.passes.sums.store_updates import StoreUpdates
from tilec.backends.cuda.passes.threads.bind_headers import BindHeaders
from tilec.backends.cuda.passes.threads.grid_barriers import OpenGridBarriers
from tilec.backends.cuda.passes.threads.lower_threads import LowerThreads
from tilec.backends.cuda.passes.threads.open_barriers import OpenBarriers
from tilec.backends.cuda.passes.threads.private_copies import PrivateCopies
from tilec.backends.cuda.passes.threads.read_trips import ReadTrips
from tilec.backends.cuda.passes.threads.share_registers import ShareRegisters
from tilec.backends.cuda.passes.threads.spell_names import SpellNames
from tilec.backends.cuda.passes.threads.split_branches import SplitBranches
from tilec.backends.cuda.passes.threads.vectorise_threads import VectoriseThreads
from tilec.backends.cuda.passes.waits.fence_proxies import FenceProxies
from tilec.backends.cuda.passes.waits.fence_reads import FenceReads
from tilec.backends.cuda.passes.waits.place_drains import PlaceDrains
from tilec.backends.cuda.passes.waits.place_product_waits import PlaceProductWaits
from tilec.backends.cuda.passes.waits.place_shared import PlaceShared
from tilec.backends.cuda.passes.waits.synchronise import Synchronise
from tilec.backends.cuda.statement_roles.boxes.store_parts import StoreParts
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.bound_products import BoundProducts
from tilec.lowering.passes.choose_stores import ChooseStores
from tilec.lowering.passes.cut_loops import CutLoops
from tilec.lowering.passes.drop_proven_tests import DropProvenTests
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.lowering.passes.expand_scaled import ExpandScaled
from tilec.lowering.passes.give_axes import GiveAxes
from tilec.lowering.passes.join_fills import JoinFills
from tilec.lowering.passes.lift_threads import LiftThreads
from tilec.lowering.passes.name_settled import NameSettled
from tilec.lowering.passes.name_variables import NameVariables
from tilec.lowering.passes.swap_tiles import SwapTiles
from tilec.lowering.passes.unfold_axes import UnfoldAxes
from tilec.lowering.passes.widen_indices import WidenIndices

#: What all launches go through before any roles are looked for.
OPENING: tuple[Pass, ...] = (
    LiftThreads(),
    NumberStages(),
    FoldRings(),
    GiveAxes(),
    TurnTensors(),
    ExpandScaled(scaled_loss),
    SplitRows(),
    NameVariables(),
    NameSettled(),
    StoreUpdates(),
    WriteOutParts(),
    PartOperands(),
    CutLoops(),
    DropProvenTests(),
    ChooseStores(),
    LookUpCodes(),
    SwapTiles(scopes=("shared.dyn",)),
    JoinFills(),
    UnfoldAxes(),
    ForwardStores(),
    PartLoads(),
    StageReads(),
    SpreadTrips(),
    HoldElements(),
    PartAdditions(),
)
#: Names, numbers and what threads do one by one.
_THREADS: tuple[Pass, ...] = (
    WidenIndices(),
    SpellNames(),
    OpenGridBarriers(),
    FuseExponents(),
    JoinLanes(),
    LowerThreads(),
    SplitBranches(),
    VectoriseThreads(),
    ReadTrips(),
    ShareRegisters(),
    SendToAll(),
    OpenBarriers(),
    BoundProducts(),
    PrivateCopies(),
    BindHeaders(),
)
#: Loads that run ahead, products of warps.
_LOADS: tuple[Pass, ...] = (
    StartCopies(),
    JoinParts(),
    PartBranches(),
    PlanPipeline(),
    SelectInstructions(),
    BringOperands(),
    SpreadScans(),
)
#: All else is loops over elements, of forms that threads share out evenly.
_LOOPS: tuple[Pass, ...] = (
    ExpandCopies(),
    PartQuotients(),
    NameQuotients(),
    SplitLoops(),
    HoistTrips(),
    WriteOutTrips(),
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
)
#: Which thread has which element; what follows of that for tiles.
_LAYOUTS: tuple[Pass, ...] = (
    InferLayouts(),
    DeferReductions(),
    ReadAhead(),
    HoistPassages(),
    SpreadBanks(),
    StoreParts(),
    DropIdleTiles(),
)
#: Places in shared memory, and where threads wait for each other and for units of the hardware.
_WAITS: tuple[Pass, ...] = (
    PlaceShared(),
    PlaceProductWaits(),
    Synchronise(),
    PlaceDrains(),
    FenceProxies(),
    FenceReads(),
    RotateProducts(),
)
#: Tile IR in; tile IR whose statements are threads' loops, warps' products, copies and barriers out.
CUDA_PASSES: tuple[Pass, ...] = (*OPENING, *_THREADS, *_LOADS, *_LOOPS, *_LAYOUTS, *_WAITS)
