"""Products in pipelined loops load the operands of their first step in the trip before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, warps_of
from tilec.backends.cuda.nodes import (
    AsyncCopy,
    CommitGroup,
    FirstOperands,
    RotatedGemm,
    ScaledWarpGemm,
    SparseWarpGemm,
    Sync,
    WaitGroup,
    WarpGemm,
    WarpgroupProduct,
    WarpTile,
)
from tilec.ir.exprs import int_value, substitute
from tilec.ir.nodes import Block, For, If, Launch, Region, Stmt, walk
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr


#: A block of this many warps with this many accumulators in each thread has a multiprocessor to itself: no
#: other block multiplies while it waits, and the registers that loading ahead takes cost it nothing.
_WARPS, _ACCUMULATORS = 8, 128


class RotateProducts(LaunchPass):
    """In: loops of a wait, a barrier, copies ahead and one product on what they bring. Out: the same, where
    the block is large, with the wait and the barrier before the last step of the product and the loads of the
    next trip's first step behind them, so that tensor cores have work while operands are on their way."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its large products rotated."""
        if warps_of(launch) < _WARPS or has_groups(launch):
            return launch
        names = (f"operands_{number}" for number in range(sum(1 for _ in walk(launch.body))))

        def rewrite(block: Block) -> list[Stmt]:
            parts: list[Stmt] = []
            for stmt in block:
                trip = _trip(stmt) if isinstance(stmt, For) else None
                parts += [stmt] if trip is None else _rotated(trip, next(names))
            return parts

        return replace(launch, body=rewrite_blocks(launch.body, rewrite))


@dataclass(frozen=True)
class _Trip:
    """A loop that can be rotated, and the statements of its body."""

    loop: For
    wait: WaitGroup
    copies: Sequence[Stmt]
    gemm: WarpGemm


def _trip(loop: For) -> _Trip | None:
    """The parts of a loop; None for any other one."""
    if loop.kind != "serial" or int_value(loop.step) != 1 or len(loop.body) < 4:
        return None
    wait, sync, *copies, gemm = loop.body
    if not (isinstance(wait, WaitGroup) and isinstance(sync, Sync) and isinstance(gemm, WarpGemm)):
        return None
    if not all(isinstance(stmt, (If, AsyncCopy, CommitGroup)) for stmt in walk(tuple(copies))):
        return None
    brought = {stmt.dst.buffer for stmt in walk(tuple(copies)) if isinstance(stmt, AsyncCopy)}
    if (
        isinstance(gemm, (ScaledWarpGemm, SparseWarpGemm, WarpgroupProduct))
        or not {gemm.a.buffer, gemm.b.buffer} <= brought
    ):
        return None
    return _Trip(loop, wait, copies, gemm) if _pays(gemm.tile) else None


def _pays(tile: WarpTile) -> bool:
    rows, columns = tile.tiles
    return tile.steps % 2 == 0 and rows * columns * 4 >= _ACCUMULATORS


def _rotated(trip: _Trip, name: str) -> list[Stmt]:
    loop, gemm = trip.loop, trip.gemm
    own = (gemm.a, gemm.b, gemm.c, gemm.trans_a, gemm.trans_b, gemm.clear, gemm.tile)
    first_a, first_b = (_moved(region, loop, loop.start) for region in (gemm.a, gemm.b))
    first = FirstOperands(first_a, first_b, *own[2:], loop.start < loop.stop, name, loc=gemm.loc)
    following = loop.var + 1
    next_a, next_b = (_moved(region, loop, following) for region in (gemm.a, gemm.b))
    product = RotatedGemm(*own, next_a, next_b, following < loop.stop, trip.wait.pending, name, loc=gemm.loc)
    return [trip.wait, Sync(), first, replace(loop, body=(*trip.copies, product))]


def _moved(region: Region, loop: For, trip: Expr) -> Region:
    """A region as another trip of the loop names it."""
    place = {loop.var: trip}
    return replace(region, start=tuple(substitute(start, place) for start in region.start))
