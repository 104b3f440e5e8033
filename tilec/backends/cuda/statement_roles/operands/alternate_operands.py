"""Operands that threads make in each trip of a loop have two versions: products read one while threads make
the other.

    for k: T = converted(raw[k]); C += A[k] T    ->    for k: T[k % 2] = converted(raw[k]); C += A[k] T[k % 2]

Where a product is waited for is `PlaceProductWaits`' affair, which knows versions of other trips apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.pipelines.versions import VERSIONS, parity, with_version
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.nodes import BoxLoad, TurnTile
from tilec.backends.cuda.statement_roles.rings.blocks_together import blocks_with_registers, lone_groups
from tilec.backends.cuda.statement_roles.rings.ring_room import free_bytes
from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import written
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import count_uses, touches
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tvm.ir import Var

    from tilec.targets import Target

_NOTE = "{} has two versions: one is made while products read the other"


class AlternateOperands(Pass):
    """In: loops of consumers that fill a whole shared tile in each trip before products of wgmma read it.
    Out: such a tile has a version for even trips and one for odd ones, where there is room."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its versions."""
        return rewrite_launches(kernel, lambda launch: _alternating(launch, target))


def _alternating(launch: Launch, target: Target) -> Launch:
    chooser = Chooser(launch, None)
    found = [
        (loop.var, tile)
        for group, loop in loops_of_groups(launch)
        for tile in made_in(loop, group, launch, chooser)
    ]
    notes: list[str] = []
    for trip, tile in found:
        if tile_bytes(Alloc(tile)) <= free_bytes(launch, target) and not _costs_a_block(tile, launch, target):
            launch = _with_versions(launch, trip, tile)
            notes.append(_NOTE.format(tile.name))
    return with_notes(launch, notes) if notes else launch


def _costs_a_block(tile: Var, launch: Launch, target: Target) -> bool:
    """Whether a multiprocessor holds a block less with another version, of launches whose blocks are many:
    these compute while others wait."""
    groups = lone_groups(launch)
    if groups is None:
        return False
    limit = gpu_limits(target, {}).shared_bytes
    taken = limit - free_bytes(launch, target)
    without, beside = (
        blocks_with_registers(groups[1], limit // bytes_taken)
        for bytes_taken in (taken, taken + tile_bytes(Alloc(tile)))
    )
    return beside < without


def loops_of_groups(launch: Launch) -> Iterator[tuple[Group, For]]:
    """The serial loops of each group of a launch, with the group; none where no load brings boxes."""
    if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
        return
    for group in (stmt for stmt in launch.body if isinstance(stmt, Group)):
        yield from ((group, loop) for loop in walk(group.body) if isinstance(loop, For))


def made_in(loop: For, group: Group, launch: Launch, chooser: Chooser) -> list[Var]:
    """The tiles that a loop fills in each trip for its products, and that nothing else uses."""
    if loop.kind != "serial" or int_value(loop.step) != 1:
        return []
    return made_for([stmt for stmt in loop.body if chooser.takes_in(stmt, group)], loop, launch)


def made_for(products: Iterable[Gemm], loop: For | Pipelined, launch: Launch) -> list[Var]:
    """`made_in` for these products of wgmma."""
    read = dict.fromkeys(region.buffer for stmt in products for region in (stmt.a, stmt.b))
    return [tile for tile in read if tile.scope() == "shared.dyn" and _is_made(tile, loop, launch)]


def _is_made(tile: Var, loop: For | Pipelined, launch: Launch) -> bool:
    """Whether a trip begins with all of a tile's elements being written, and no other statement uses it."""
    inside = [stmt for stmt in loop.body if touches(stmt, tile)]
    alone = count_uses(launch.body, tile) == count_uses(tuple(inside), tile)
    later = {buffer for stmt in walk(tuple(inside[1:])) for buffer in written(stmt)}
    return bool(inside) and alone and _fills(inside[0], tile) and tile not in later


def _fills(stmt: Stmt, tile: Var) -> bool:
    """Whether a statement writes each element of a tile, and reads none."""
    if isinstance(stmt, (Copy, TurnTile)):
        return stmt.dst.buffer.same_as(tile) and is_whole(stmt.dst)
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    own = count_uses((stmt,), tile)
    return store is not None and store.buffer.same_as(tile) and own == 1


def _with_versions(launch: Launch, trip: Var, tile: Var) -> Launch:
    """The launch with two versions of a tile, by the parity of the ``trip``."""
    shape = (VERSIONS, *static_extents(tile))
    made = tirx.decl_buffer(shape, str(tile.dtype), name=str(tile.name), scope="shared.dyn")

    def rewrite(block: Block) -> list[Stmt]:
        return [
            replace(stmt, buffer=made) if isinstance(stmt, Alloc) and stmt.buffer.same_as(tile) else stmt
            for stmt in block
        ]

    body = with_version(launch.body, {tile: made}, parity(trip))
    return replace(launch, body=rewrite_blocks(body, rewrite))
