"""Schedule keys of a product that its config leaves open: whether two warpgroups take turns at tiles, and
whether blocks share the K of one (`parts`); and the warpgroups that share a tile, where the author's one has
too few registers for its sums.

Turns want a walk of several tiles for each block: then one warpgroup multiplies while the other stores. On an
H200, in us, with a ring of 6 stages (8 for tiles of 64 x 128), beside one that shares the tile between two
warpgroups, and one that has it for a single one:

tile       M, N, K              turns   two   one
128 x 128  4096, 4096, 4096     183     186   187
128 x 128  8192, 8192, 8192     1517    1574  1518
128 x 128  6144, 4096, 256      25.6    27.6  34.4
64 x 128   2048, 4096, 14336    403           480
128 x 128  512, 4096, 4096      25.6    25.7  25.6
64 x 256   1024, 1024, 1024     9.2           8.7

The blocks of the last two have one tile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.limits import gpu_limits
from tilec.backends.cuda.matmul.assign.parts import most_tiles, parts_of_k, stage_bytes
from tilec.backends.cuda.matmul.match.heads import is_straight
from tilec.backends.cuda.matmul.match.launch import Match
from tilec.backends.cuda.warp_roles.nodes import TAKE_TURNS, WARPGROUP
from tilec.backends.cuda.warp_roles.stores import STAGING_BYTES, staging_room
from tilec.backends.cuda.warp_roles.wgmma import holds
from tilec.ir.exprs import uncast
from tilec.ir.nodes import Launch, Stmt, Store

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.schedule import Schedule
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Registers of a warpgroup's sums that leave an epilogue enough to compute with, and one that only stores.
_SUMS, _STORED_SUMS = 128, 192
#: Columns from which products, not loads, are what a tile waits for.
_COLUMNS = 64
#: Stages that a loop of several keeps where few fit.
_LEAST_STAGES = 2
_TURNS = "two warpgroups take turns at tiles, so that one multiplies while the other stores"


def with_choices(launch: Launch, found: Match, facts: Facts, gathers: bool, target: Target) -> Launch:
    """``launch`` with what its schedule leaves open, and a note for each choice. ``facts``: those in front of
    its loop; ``gathers``: its loaders move data themselves."""
    schedule = launch.schedule
    asked = (schedule.pingpong, schedule.split_k, schedule.promote_k)
    if gathers or schedule.persistent is False or any(each is not None for each in asked):
        return launch
    if found.promotion is not None:
        return launch
    tiles = most_tiles(launch, facts)
    alone = found.is_single and found.guard is None and is_straight(found.head) and schedule.clusters is None
    parts = parts_of_k(found, facts, tiles, target) if alone else 1
    if parts > 1:
        note = f"{parts} blocks share the K of a tile, as there are no more than {tiles} tiles"
        return replace(launch, schedule=replace(schedule, split_k=parts), notes=(*launch.notes, note))
    if tiles <= gpu_limits(target, {}).units or not _may_take_turns(found, target):
        return launch
    return replace(launch, schedule=replace(schedule, pingpong=True), notes=(*launch.notes, _TURNS))


def with_room(found: Match, schedule: Schedule) -> Match:
    """``found`` with the rows of its tiles shared by two warpgroups, where one cannot hold their sums."""
    promotes = found.promotion is not None or schedule.promote_k is not None
    held = (1 + promotes) * sum(rows * columns // WARPGROUP for rows, columns in found.shapes)
    shared = all(rows % (2 * ROWS) == 0 for rows, _ in found.shapes)
    if found.warpgroups > 1 or not shared or holds(held):
        return found
    return replace(found, warpgroups=2)


def _may_take_turns(found: Match, target: Target) -> bool:
    """Whether a warpgroup can hold a tile of its own."""
    held = sum(rows * columns // (2 * ROWS) for rows, columns in found.shapes)
    fits = held <= (_STORED_SUMS if _only_stores(found) else _SUMS)
    shaped = all(rows % ROWS == 0 and columns >= _COLUMNS for rows, columns in found.shapes)
    return fits and shaped and _keeps_staging(found, target)


def _keeps_staging(found: Match, target: Target) -> bool:
    """Whether the author's stages leave room for a staging buffer of each warpgroup."""
    return staging_room(_asked(found) * stage_bytes(found), TAKE_TURNS, target) >= STAGING_BYTES


def with_stages(found: Match, target: Target) -> Match:
    """``found`` with the stages of its author; where these do not fit, with as many as leave results room for
    a staging buffer of each warpgroup, two at least."""
    one, asked = stage_bytes(found), _asked(found)
    if staging_room(asked * one, found.warpgroups, target) >= 0:
        return found
    fitting = (
        stages
        for stages in range(asked - 1, _LEAST_STAGES, -1)
        if staging_room(stages * one, found.warpgroups, target) >= STAGING_BYTES
    )
    stages = next(fitting, min(asked, _LEAST_STAGES))
    return replace(found, loop=replace(found.loop, num_stages=stages))


def _asked(found: Match) -> int:
    """The stages of a loop."""
    return max(found.loop.num_stages, 1)


def _only_stores(found: Match) -> bool:
    """Whether the epilogue is one store of each of the sums, rounded or not."""
    stores = [stmt for loop in found.tail for stmt in loop.body]
    stored = {_stored(stmt) for stmt in stores}
    return len(stores) == len(found.sums) and stored == {gemm.c.buffer for gemm in found.sums}


def _stored(stmt: Stmt) -> Var | None:
    """What a statement stores an element of, rounded or not; None for others."""
    if not isinstance(stmt, Store):
        return None
    value = uncast(stmt.value)
    return value.source if isinstance(value, TensorLoad) else None
