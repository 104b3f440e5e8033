"""The order of passes for CPU targets."""

from __future__ import annotations

from tilec.backends.cpu.passes.few_bits.move_scales import MoveScales
from tilec.backends.cpu.passes.few_bits.read_stored import ReadStored
from tilec.backends.cpu.passes.few_bits.sum_groups import SumGroups
from tilec.backends.cpu.passes.join_updates import JoinUpdates
from tilec.backends.cpu.passes.loops.carry_columns import CarryColumns
from tilec.backends.cpu.passes.loops.carry_sums import CarrySums
from tilec.backends.cpu.passes.loops.even_trips import EvenTrips
from tilec.backends.cpu.passes.loops.fuse_elementwise import FuseElementwise
from tilec.backends.cpu.passes.loops.fuse_rows import FuseRows
from tilec.backends.cpu.passes.loops.narrow_numbers import NarrowNumbers
from tilec.backends.cpu.passes.loops.privatise_tiles import PrivatiseTiles
from tilec.backends.cpu.passes.loops.read_in_place import ReadInPlace
from tilec.backends.cpu.passes.loops.shrink_rows import ShrinkRows
from tilec.backends.cpu.passes.loops.split_padding import SplitPadding
from tilec.backends.cpu.passes.loops.split_rims import SplitRims
from tilec.backends.cpu.passes.loops.vectorise_inside import VectoriseInside
from tilec.backends.cpu.passes.loops.words_of_bytes import WordsOfBytes
from tilec.backends.cpu.passes.narrow_where_made import NarrowWhereMade
from tilec.backends.cpu.passes.own_updates import OwnUpdates
from tilec.backends.cpu.passes.place_tiles import PlaceTiles
from tilec.backends.cpu.passes.prefetch.ask_for_pieces import AskForPieces
from tilec.backends.cpu.passes.prefetch.ask_for_results import AskForResults
from tilec.backends.cpu.passes.prefetch.ask_for_rows import AskForRows
from tilec.backends.cpu.passes.prefetch.ask_for_tiles import AskForTiles
from tilec.backends.cpu.passes.prefetch.ask_for_weights import AskForWeights
from tilec.backends.cpu.passes.products.branch_few_rows import BranchFewRows
from tilec.backends.cpu.passes.products.copy_loops import CopyLoops
from tilec.backends.cpu.passes.products.forward_operands import ForwardOperands
from tilec.backends.cpu.passes.products.fuse_epilogue import FuseEpilogue
from tilec.backends.cpu.passes.products.join_products import JoinProducts
from tilec.backends.cpu.passes.products.leave_hidden import LeaveHidden
from tilec.backends.cpu.passes.products.limit_fills import LimitFills
from tilec.backends.cpu.passes.products.limit_rows import LimitRows
from tilec.backends.cpu.passes.products.merge_k_steps import MergeKSteps
from tilec.backends.cpu.passes.products.merge_panels import MergePanels
from tilec.backends.cpu.passes.products.pack_operands import PackOperands
from tilec.backends.cpu.passes.products.select_microkernel import SelectMicrokernel
from tilec.backends.cpu.passes.products.spread_depth import SpreadDepth
from tilec.backends.cpu.passes.products.turn_few_columns import TurnFewColumns
from tilec.backends.cpu.passes.products.turn_few_rows import TurnFewRows
from tilec.backends.cpu.passes.run_in_order import RunInOrder
from tilec.backends.cpu.threads.expand_products import ExpandLaneProducts
from tilec.backends.cpu.threads.threads_to_tiles import ThreadsToTiles
from tilec.lowering.passes.base import Pass
from tilec.lowering.passes.bound_products import BoundProducts
from tilec.lowering.passes.choose_stores import ChooseStores
from tilec.lowering.passes.expand_copies import ExpandCopies
from tilec.lowering.passes.expand_reduces import ExpandReduces
from tilec.lowering.passes.expand_scaled import ExpandScaled
from tilec.lowering.passes.expand_scans import ExpandScans
from tilec.lowering.passes.expand_sparse import ExpandSparse
from tilec.lowering.passes.give_axes import GiveAxes
from tilec.lowering.passes.join_fills import JoinFills
from tilec.lowering.passes.lift_threads import LiftThreads
from tilec.lowering.passes.swap_tiles import SwapTiles
from tilec.lowering.passes.unfold_axes import UnfoldAxes
from tilec.lowering.passes.unless_overlapping import UnlessOverlapping
from tilec.lowering.passes.widen_indices import WidenIndices

#: Tile IR in, tile IR with nothing but loops, stores, products and placed tiles out.
CPU_PASSES: tuple[Pass, ...] = (
    GiveAxes(),
    ExpandScaled(dtype="float32"),
    ChooseStores(parts=True),
    LiftThreads(),
    JoinFills(),
    UnfoldAxes(),
    SwapTiles(scopes=("shared.dyn", "local.fragment")),
    SpreadDepth(),
    SumGroups(),
    CopyLoops(),
    WidenIndices(wide_sums=True),
    ExpandLaneProducts(),
    RunInOrder(),
    ThreadsToTiles(),
    UnlessOverlapping(JoinUpdates()),
    UnlessOverlapping(OwnUpdates()),
    UnlessOverlapping(NarrowWhereMade()),
    EvenTrips(),
    CarrySums(),
    SplitPadding(),
    UnlessOverlapping(VectoriseInside()),
    WordsOfBytes(),
    SplitRims(),
    ExpandSparse(),
    BoundProducts(),
    TurnFewRows(),
    TurnFewColumns(),
    SelectMicrokernel(),
    MoveScales(),
    ReadStored(),
    BranchFewRows(),
    ForwardOperands(),
    MergePanels(),
    MergeKSteps(),
    UnlessOverlapping(FuseEpilogue()),
    PackOperands(),
    ExpandReduces(),
    ExpandScans("vectorized"),
    ReadInPlace(),
    ExpandCopies(),
    UnlessOverlapping(FuseElementwise()),
    CarryColumns(),
    PrivatiseTiles(),
    UnlessOverlapping(FuseRows()),
    NarrowNumbers(),
    AskForRows(),
    AskForResults(),
    AskForTiles(),
    AskForPieces(),
    AskForWeights(),
    LeaveHidden(),
    ShrinkRows(),
    LimitRows(),
    LimitFills(),
    UnlessOverlapping(JoinProducts()),
    PlaceTiles(),
)
