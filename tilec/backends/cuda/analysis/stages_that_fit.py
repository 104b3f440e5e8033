"""How many stages of a loop's loads a block has shared memory for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.ir.nodes import Alloc, Launch, Pipelined, Stmt, walk
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from tvm.ir import Var


def stages_that_fit(loop: Pipelined, loaded: Iterable[Var], launch: Launch, room: int) -> int:
    """As many stages as a loop asks for, or as fit into ``room`` bytes beside what is in use all the while;
    at least two. Tiles of the loop alone may take turns on the same bytes, and count for nothing."""
    tiles = set(loaded)
    each = sum(map(tile_bytes, tiles))
    inside = set(walk(loop.body))
    outside = [stmt for stmt in walk(launch.body) if stmt is not loop and stmt not in inside]
    kept = (_shared(inside) & _shared(outside)) - tiles
    most = (room - sum(map(tile_bytes, kept))) // max(each, 1)
    return min(loop.num_stages, max(most, 2))


def _shared(stmts: Iterable[Stmt]) -> set[Var]:
    """The shared tiles that statements name."""
    named = {buffer for stmt in stmts if not isinstance(stmt, Alloc) for buffer in buffers(stmt)}
    return {buffer for buffer in named if buffer.scope() == "shared.dyn"}
