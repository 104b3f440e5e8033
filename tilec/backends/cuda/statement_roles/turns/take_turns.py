"""Two warpgroups that share the columns of a result take the first products of trips in turns.

    for k: S = Q K[k]; P, rows = f(S, rows); O = O * g(rows) + P V[k]    by both, columns of S and O shared
    ->  one, for even k                          the other one
        S = Q K[k]                               S = Q K[k + 1]
        P, rows = f(S, rows); tell               hear; its columns of O, of k
        its columns of O, of k                   P, rows = f(S, rows); tell
        hear; its columns of O, of k + 1         its columns of O, of k + 1

Where both compute S, each reads Q for half of its columns, and they meet for every sum of a row, while tensor
cores are idle. In turns the products of one run beside the arithmetic of the other. What one tells passes
through shared memory, rows ahead of weights (H200, lists of pages: 107.6 us with all told at once, 104.5 so),
and is there once: who tells has heard, and is done with, what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.nodes import GiveBack
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.statement_roles.operands.alternate_operands import made_in
from tilec.backends.cuda.statement_roles.operands.hold_operands import is_first
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.backends.cuda.statement_roles.turns.group_program import GROUPS, Turns, fragment
from tilec.backends.cuda.statement_roles.turns.part_rings import parted
from tilec.backends.cuda.statement_roles.turns.trip_parts import TripParts, parts_of
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, For, Gemm, Kernel, Launch, Stmt, children, walk
from tilec.ir.nodes.barriers import SCOPE, WARP, AllocBarrier, Group
from tilec.ir.traits import buffers
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

_NOTE = "warpgroups take the first products of the loop over {} in turns"


class TakeTurns(Pass):
    """In: two warpgroups that compute, with a loop of products whose columns they share. Out: a group for
    each, of which one alone has the first products of a trip, where registers and shared memory hold what
    that takes."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its groups."""
        return rewrite_launches(kernel, lambda launch: _in_turns(launch, target))


def _in_turns(launch: Launch, target: Target) -> Launch:
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group) and _computes(stmt)]
    if len(groups) != 1 or (groups[0].first, groups[0].count) != (0, GROUPS * WARPGROUP):
        return launch
    try:
        turns = _turns(launch, groups[0])
        made = _made(launch, turns)
    except Unfit:
        return launch
    return next((each for each in (_with_parts(made, turns), made) if _is_fit(each, target)), launch)


def _is_fit(launch: Launch, target: Target) -> bool:
    """Whether shared memory holds the tiles of a launch, and each group's columns make whole operands."""
    assert target.gpu is not None
    chooser, warps = Chooser(launch, None), WARPGROUP // WARP
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    taken = all(chooser.takes(product, warps) for product in products)
    return taken and pool_plan(launch).total <= target.gpu.shared_bytes


def _with_parts(launch: Launch, turns: Turns) -> Launch:
    """The launch with rings for the columns of each group, of the tiles that its last products read."""
    tiles = [tile for stmt in turns.trip.rest if isinstance(stmt, GiveBack) for tile in stmt.tiles]
    for tile in tiles:
        groups = tuple(stmt for stmt in launch.body if isinstance(stmt, Group) and _computes(stmt))
        with suppress(Unfit):
            launch = parted(launch, tile, groups)
    return launch


def _computes(group: Group) -> bool:
    """Whether a group multiplies what another one brings."""
    kinds = [type(stmt) for stmt in walk(group.body)]
    return GiveBack in kinds and Gemm in kinds


def _turns(launch: Launch, group: Group) -> Turns:
    """How the warpgroups of a group take turns."""
    products = [stmt for stmt in walk(group.body) if isinstance(stmt, Gemm)]
    loop = next(
        (stmt for stmt in walk(group.body) if isinstance(stmt, For) and products[0] in stmt.body), None
    )
    if loop is None or not all(stmt in loop.body for stmt in products):
        raise Unfit("its products are not those of one loop")
    chooser = Chooser(launch, None)
    stored = (tile for tile in made_in(loop, group, launch, chooser) if is_first(tile, loop))
    held = {tile: fragment(tile) for tile in stored}
    trip = parts_of(replace(loop, body=with_buffers(loop.body, held)), _read_beside(group.body, loop), launch)
    need(trip.weights <= set(held.values()), "weights are in a fragment of the author's own", loop)
    _check_products(products, group, trip, chooser)
    _check_stages(launch, trip)
    passing = {own: tile for tile, own in held.items()}
    rows = [tile for tile in trip.told if tile not in passing]
    told = tuple(passing | {tile: fragment(tile, "shared.dyn") for tile in rows} for _ in range(GROUPS))
    signals = tirx.decl_buffer((GROUPS * len(trip.steps) + 1,), "uint64", "told", scope=SCOPE)
    return Turns(group, loop, trip, told, signals)


def _made(launch: Launch, turns: Turns) -> Launch:
    """The launch with a group for each warpgroup."""
    groups = tuple(turns.of_group(number) for number in range(GROUPS))
    need(all(fits_registers(group.body, group) for group in groups), "registers do not hold its fragments")
    alone = {stmt.barrier for stmt in turns.trip.alone}

    def statements(stmt: Stmt) -> Block:
        if stmt is turns.group:
            return (*turns.shared(), *groups)
        if isinstance(stmt, AllocBarrier) and stmt.buffer in alone:
            return (replace(stmt, counts=tuple(count // GROUPS for count in stmt.counts)),)
        return (stmt,)

    body = tuple(made for stmt in launch.body for made in statements(stmt))
    return with_notes(replace(launch, body=body), [_NOTE.format(turns.loop.var.name)])


def _read_beside(block: Block, loop: For) -> set[Var]:
    """The buffers that statements name behind a loop, or around it, where it runs several times."""
    behind = block[block.index(loop) + 1 :] if loop in block else block
    return {buffer for stmt in behind for buffer in _named(stmt, loop)}


def _named(stmt: Stmt, loop: For) -> Iterator[Var]:
    """The buffers that a statement names outside of a loop."""
    if stmt is loop or isinstance(stmt, Alloc):
        return
    yield from buffers(stmt)
    for part in children(stmt):
        for inner in part:
            yield from _named(inner, loop)


def _check_products(products: list[Gemm], group: Group, trip: TripParts, chooser: Chooser) -> None:
    """Unfit where warpgroups do not share the columns of all products, or those of results differ."""
    need(len({static_extents(tile) for tile in trip.sums}) == 1, "its results have several shapes")
    for product in products:
        found = chooser.product(product, group.count // WARP)
        shared = not isinstance(found, str) and found[0].warps[1] == GROUPS
        need(shared, "warpgroups do not share its columns", product)


def _check_stages(launch: Launch, trip: TripParts) -> None:
    """Unfit where two trips share a stage, or those of first products go back elsewhere, too."""
    every = [stmt.barrier for stmt in walk(launch.body) if isinstance(stmt, GiveBack)]
    inside = [stmt.barrier for stmt in walk(trip.loop.body) if isinstance(stmt, GiveBack)]
    need(all((int_value(barrier.shape[0]) or 0) >= GROUPS for barrier in inside), "two trips share a stage")
    once = all(sum(barrier.same_as(stmt.barrier) for barrier in every) == 1 for stmt in trip.alone)
    need(once, "a stage of its first products goes back elsewhere, too")
