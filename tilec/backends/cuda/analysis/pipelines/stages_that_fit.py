"""How many stages of a loop's loads a block has shared memory for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.fit_operands import fit
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.ir.nodes import Alloc, Gemm, Launch, Pipelined, Stmt, walk
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

_FEWER = "the loop over {} has {} in place of {}: a block has {} bytes of shared memory"


def stages_that_fit(loop: Pipelined, loaded: Iterable[Var], launch: Launch, target: Target, room: int) -> int:
    """As many stages as a loop asks for, or as fit into ``room`` bytes beside what is in use all the while,
    and what a trip has at once of its own tiles, which may take turns on the same bytes; at least one."""
    tiles = set(loaded)
    each = sum(map(tile_bytes, tiles))
    inside = set(walk(loop.body))
    outside = [stmt for stmt in walk(launch.body) if stmt is not loop and stmt not in inside]
    kept = (_shared(inside) & _shared(outside)) - tiles
    beside = sum(map(tile_bytes, kept)) + _most_at_once(loop, tiles | kept, target)
    return min(loop.num_stages, max((room - beside) // max(each, 1), 1))


def fewer_stages(loop: Pipelined, stages: int, room: int) -> list[str]:
    """What `explain` says of a loop that has ``stages`` in ``room`` bytes; nothing where these are all."""
    if stages >= loop.num_stages:
        return []
    have = "1 stage" if stages == 1 else f"{stages} stages"
    return [_FEWER.format(loop.var.name, have, loop.num_stages, room)]


def _most_at_once(loop: Pipelined, others: set[Var], target: Target) -> int:
    """Bytes of the tiles beside ``others`` that a trip has at once, each from the first statement that names
    it to the last one."""
    named = [_shared(_carried_out(stmt, target)) - others for stmt in loop.body]
    places = {tile: [at for at, tiles in enumerate(named) if tile in tiles] for tile in set().union(*named)}
    return max(
        (
            sum(tile_bytes(tile) for tile, found in places.items() if found[0] <= at <= found[-1])
            for at in range(len(named))
        ),
        default=0,
    )


def _carried_out(stmt: Stmt, target: Target) -> Iterator[Stmt]:
    """A statement and those inside, with what converts and pads the operands of products."""
    for each in walk((stmt,)):
        yield each
        if isinstance(each, Gemm):
            yield from fit(each, target).before


def _shared(stmts: Iterable[Stmt]) -> set[Var]:
    """The shared tiles that statements name."""
    named = {buffer for stmt in stmts if not isinstance(stmt, Alloc) for buffer in buffers(stmt)}
    return {buffer for buffer in named if buffer.scope() == "shared.dyn"}
