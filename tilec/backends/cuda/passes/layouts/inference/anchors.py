"""Layouts that an instruction fixes: accumulators and operands of products, lines of scans, rows that lanes
load.

mma.sync and wgmma say which lane holds which element of a product's sums, and of an A operand that is a
fragment (PTX ISA, "Matrix fragments"); loops over these follow (`follow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import accumulator_layout, operand_layout
from tilec.backends.cuda.analysis.layouts.tiles import slices_of, swizzled
from tilec.backends.cuda.analysis.products.wgmma import operand_in_memory, sums_layout
from tilec.backends.cuda.nodes import BlockScan, TensorPut, TensorSums, TurnTile, WarpGemm, WarpgroupProduct
from tilec.backends.cuda.passes.sums.spread_scans import scan_layout
from tilec.ir.layout import Layout
from tilec.ir.nodes.threads import LaneLoad

if TYPE_CHECKING:
    from tilec.backends.cuda.passes.layouts.inference.known import Known
    from tilec.backends.cuda.passes.layouts.inference.teams import Team
    from tilec.ir.nodes import Stmt


def lay_anchors(known: Known, team: Team) -> None:
    """Layouts that the statements of a team fix: wgmma's first, whose forms are the narrower ones."""
    for stmt in sorted(team.stmts, key=lambda stmt: not isinstance(stmt, WarpgroupProduct)):
        _lay(known, stmt)


def _lay(known: Known, stmt: Stmt) -> None:
    layouts = known.layouts
    if isinstance(stmt, WarpGemm):
        _lay_product(known, stmt)
    elif isinstance(stmt, TensorSums):
        layouts.setdefault(stmt.dst.buffer, accumulator_layout(stmt.tile))
    elif isinstance(stmt, TensorPut):
        layouts.setdefault(stmt.src.buffer, accumulator_layout(stmt.tile))
    elif isinstance(stmt, LaneLoad):
        _lay_rows(known, stmt)
    elif isinstance(stmt, TurnTile):
        layouts.setdefault(stmt.src.buffer, swizzled(stmt.src.buffer))
    elif isinstance(stmt, BlockScan):
        layouts[stmt.tile.buffer] = scan_layout(stmt.tile.buffer, known.warps)


def _lay_product(known: Known, gemm: WarpGemm) -> None:
    lead = ((),) * (len(gemm.c.extent) - 2)
    made = sums_layout(gemm, slices_of(gemm.c))
    known.layouts.setdefault(gemm.c.buffer, Layout((*lead, *made.digits)))
    if gemm.a.buffer in known.fragments and not _is_shared(known, gemm):
        lead = ((),) * (len(gemm.a.extent) - 2)
        known.layouts.setdefault(gemm.a.buffer, Layout((*lead, *operand_layout(gemm.tile).digits)))
    for region, across in ((gemm.a, gemm.trans_a), (gemm.b, not gemm.trans_b)):
        if region.buffer.scope() == "shared.dyn":
            known.layouts.setdefault(region.buffer, operand_in_memory(gemm, region.buffer, across))


def _is_shared(known: Known, gemm: WarpGemm) -> bool:
    """Whether warpgroups share the columns of a product whose A is made of sums of which each has a part:
    they hand these on in shared memory."""
    shares = isinstance(gemm, WarpgroupProduct) and gemm.tile.warps[1] > 1
    return shares and gemm.a.buffer in known.made_of_sums


def _lay_rows(known: Known, stmt: LaneLoad) -> None:
    """A tile of which lanes load rows of 16 bytes; not one that foreign code gets the address of."""
    tile = stmt.source.source
    if tile.scope() == "shared.dyn" and tile not in known.addressed:
        known.layouts.setdefault(tile, swizzled(tile, stmt.trans))
