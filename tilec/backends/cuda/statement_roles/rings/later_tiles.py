"""Tiles that a launch brings behind its loops lie where tiles lay that it has read before them.

    A -> S; C = f(S); for k: ...; X -> R; C += R    ->    R lies where S lay

The producer waits for S to be given back, which loads of the loops between have come after anyway. Blocks of
fewer bytes are more on a multiprocessor. H200, scans of chunks of 256 steps, 80 heads of 64 with 128 states:
sums of 128 x 64 by a warpgroup 1048 and 587 us, of 64 x 64 with 32 steps a trip 573 and 508.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.passes.waits.place_shared import SMALL
from tilec.backends.cuda.statement_roles.split.loads import is_loop
from tilec.ir.nodes import Alloc, Block, Stmt, walk
from tilec.lowering.analysis.uses import touches
from tilec.lowering.emission.memory import tile_bytes

if TYPE_CHECKING:
    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.loads import Load


def laid_over(rings: Sequence[Ring], found: Mapping[Stmt, Load], body: Block) -> list[Ring]:
    """The rings, with those that may lie ``over`` another one."""
    made: list[Ring] = []
    taken: set[Ring] = set()
    for ring in rings:
        free = (each for each in rings if each not in taken and _follows(ring, each, found, body))
        under = next(free, None)
        taken |= set() if under is None else {under}
        made.append(ring if under is None else replace(ring, over=under.tiles))
    return made


def _follows(later: Ring, early: Ring, found: Mapping[Stmt, Load], body: Block) -> bool:
    """Whether a loop that loads stands between the last use of an ``early`` ring and the only loads of a
    ``later`` one, which has room in one of its tiles."""
    room = max(tile_bytes(Alloc(tile)) for tile in early.tiles)
    if not SMALL < later.bytes <= room or not all(_is_loaded_once(ring, found) for ring in (early, later)):
        return False
    uses = [place for place, stmt in enumerate(body) if any(touches(stmt, tile) for tile in early.tiles)]
    loads = [place for place, stmt in enumerate(body) if stmt in found and found[stmt].tile in later.tiles]
    if len(loads) < len(later.tiles):
        return False
    between = body[max(uses) + 1 : min(loads)]
    return any(is_loop(stmt) and any(inner in found for inner in walk((stmt,))) for stmt in between)


def _is_loaded_once(ring: Ring, found: Mapping[Stmt, Load]) -> bool:
    """Whether TMA brings each of its tiles by one statement, into one stage."""
    loads = [load for load in found.values() if load.tile in ring.tiles]
    return ring.stages == 1 and not ring.by_threads and len(loads) == len(ring.tiles)
