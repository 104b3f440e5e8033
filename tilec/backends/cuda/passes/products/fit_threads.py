"""Blocks of threads that cannot share a product evenly have fewer, those that cannot hold its sums more.

A tile of 128 x 128 by 384 threads: three warpgroups share neither its rows nor its columns, and what four
warps compute the other eight repeat. Two such tiles of float32, sums and what they are added to every few
trips, by 128 threads: each would have 256 registers of them. Nothing but the author's hint says how many
threads there are where no statement asks for a thread's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import has_groups, thread_count, warps_of
from tilec.backends.cuda.analysis.products.mma import warp_tile
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.statement_roles.split.registers import MOST_GROUPS, registers_held, words_of
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import Alloc, For, Gemm, Kernel, Launch, Pipelined, Stmt, walk
from tilec.ir.nodes.barriers import WARP, AllocBarrier
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import buffers, expressions
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

_FEWER = "{} threads share no product evenly: it runs with {}"
_MORE = "{} threads have no registers for what trips hand on: it runs with {}"
#: Registers of a thread that fragments of other threads than the author's may take.
_MOST = 224
#: Those that what trips hand on may take: others are left for places and for what a trip makes itself.
_MOST_HANDED_ON = 240
#: Warps of a warpgroup, by which counts go down.
_STEP = 4


class FitThreads(Pass):
    """In: launches in which nothing depends on how many threads there are. Out: those whose warps share a
    product unevenly, as warpgroups or by mma.sync, have the most warpgroups that share all evenly; those
    whose threads cannot hold what trips with products hand on the fewest that can."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its threads."""
        return rewrite_launches(kernel, lambda launch: _fitted(launch, target))


def _fitted(launch: Launch, target: Target) -> Launch:
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    warps = warps_of(launch)
    if not products or not _is_free(launch):
        return launch
    if _handed_on(launch, warps) > _MOST_HANDED_ON:
        counts, words = range(warps + _STEP, MOST_GROUPS * _STEP + 1, _STEP), _MORE
    elif warps > _STEP and not _shares(launch, products, warps, target):
        counts, words = range((warps - 1) // _STEP * _STEP, 0, -_STEP), _FEWER
    else:
        return launch
    for count in counts:
        if _shares(launch, products, count, target) and _holds(launch, count):
            note = words.format(thread_count(launch), count * WARP)
            return with_notes(replace(launch, threads=(count * WARP, 1, 1)), [note])
    return launch


def _holds(launch: Launch, warps: int) -> bool:
    return registers_held(launch.body, warps * WARP) <= _MOST


def _handed_on(launch: Launch, warps: int) -> int:
    """Registers of a thread for what trips with products hand on: fragments that others use, too."""
    everywhere = Counter(buffer for stmt in walk(launch.body) for buffer in _fragments(stmt))
    trips = [stmt for stmt in walk(launch.body) if isinstance(stmt, (For, Pipelined))]
    inner = (trip for trip in trips if any(isinstance(stmt, Gemm) for stmt in walk(trip.body)))
    return max((_shared_with_others(trip, everywhere, warps) for trip in inner), default=0)


def _shared_with_others(trip: For | Pipelined, everywhere: Mapping[Var, int], warps: int) -> int:
    inside = Counter(buffer for stmt in walk(trip.body) for buffer in _fragments(stmt))
    held = (buffer for buffer, count in inside.items() if count < everywhere[buffer])
    return sum(words_of(buffer, warps * WARP) for buffer in held)


def _fragments(stmt: Stmt) -> set[Var]:
    """The fragments that a statement itself uses."""
    if isinstance(stmt, Alloc):
        return set()
    return {buffer for buffer in buffers(stmt) if buffer.scope() == "local.fragment"}


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
