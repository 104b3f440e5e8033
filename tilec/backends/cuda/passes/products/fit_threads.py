"""Blocks of threads that cannot share a product evenly have fewer.

A tile of 128 x 128 by 384 threads: three warpgroups share neither its rows nor its columns, and what four
warps compute the other eight repeat. Nothing but the author's hint says how many threads there are where no
statement asks for a thread's number.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, thread_count, warps_of
from tilec.backends.cuda.analysis.products.mma import warp_tile
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.general.roles.registers import registers_held
from tilec.backends.cuda.limits import has_wgmma
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import Alloc, Gemm, Kernel, Launch, walk
from tilec.ir.nodes.barriers import WARP, AllocBarrier
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import expressions
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

_NOTE = "{} threads share no product evenly: it runs with {}"
#: Registers of a thread that fragments of fewer threads may take.
_MOST = 224
#: Warps of a warpgroup, by which counts go down.
_STEP = 4


class FitThreads(Pass):
    """In: launches in which nothing depends on how many threads there are. Out: those whose warps share a
    product unevenly, as warpgroups or by mma.sync, have the most warpgroups that share all evenly."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its threads."""
        return rewrite_launches(kernel, lambda launch: _fitted(launch, target))


def _fitted(launch: Launch, target: Target) -> Launch:
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    warps = warps_of(launch)
    if not products or warps <= _STEP or not _is_free(launch) or _shares(launch, products, warps, target):
        return launch
    fewer = range((warps - 1) // _STEP * _STEP, 0, -_STEP)
    for count in fewer:
        if _shares(launch, products, count, target) and registers_held(launch.body, count * WARP) <= _MOST:
            note = _NOTE.format(thread_count(launch), count * WARP)
            return with_notes(replace(launch, threads=(count * WARP, 1, 1)), [note])
    return launch


def _is_free(launch: Launch) -> bool:
    """Whether no statement of a launch counts threads, or says which of them holds what."""
    stmts = list(walk(launch.body))
    counted = any(isinstance(stmt, AllocBarrier) or (isinstance(stmt, Sync) and stmt.count) for stmt in stmts)
    asked = any(isinstance(stmt, Alloc) and stmt.asked is not None for stmt in stmts)
    foreign = any(
        is_foreign(node) for stmt in stmts for expr in expressions(stmt) for node in walk_expr(expr)
    )
    return not (launch.thread_vars or has_groups(launch) or counted or asked or foreign)


def _shares(launch: Launch, products: list[Gemm], warps: int, target: Target) -> bool:
    """Whether ``warps`` warps have equal parts of each product, all as warpgroups or all by mma.sync."""
    chooser = Chooser(launch, None)
    if has_wgmma(target) and all(chooser.takes(product, warps) for product in products):
        return True
    tiles = [warp_tile(product, warps, target) for product in products]
    return all(isinstance(tile, str) or prod(tile.warps) == warps for tile in tiles)
