"""Shared tiles that are first used when a launch is done with its rings, whose bytes they may take."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import EachTile, GiveBack, InitBarriers, RemoteStore, TensorCommit
from tilec.ir.exprs import int_value, same
from tilec.ir.nodes import Alloc, Block, If, Launch, Stmt, children, walk
from tilec.ir.nodes.barriers import AllocBarrier, Arrive, ClusterCopy, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import buffers, scratch, written

if TYPE_CHECKING:
    from tvm.ir import Var

#: What gives stages of rings back.
_RETURNS = (GiveBack, TensorCommit)


def rings_of(launch: Launch) -> set[Var]:
    """The tiles of a launch that go back to a producer."""
    return {tile for stmt in walk(launch.body) if isinstance(stmt, _RETURNS) for tile in stmt.tiles}


def behind_rings(launch: Launch) -> set[Var]:
    """The shared tiles that consumers first use behind their last use of a ring, where all of them meet if
    they are several groups; none where a block takes several tiles of the grid, whose loads run ahead.
    Consumers have waited for everything that was brought by then."""
    rings = rings_of(launch)
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group) and _gives_back(stmt)]
    if not groups or any(isinstance(stmt, EachTile) for stmt in walk(launch.body)):
        return set()
    count = sum(each.count for each in groups)
    if len(groups) > 1 and not all(_meets(group, launch, count, rings) for group in groups):
        return set()
    found = [used_behind(group.body, rings) for group in groups]
    ahead = {tile for group, own in zip(groups, found, strict=True) for tile in used(group.body) - own}
    others = used(stmt for stmt in launch.body if stmt not in groups)
    return set().union(*found) - ahead - others


def turns_of(launch: Launch) -> dict[Var, tuple[int, int | None]]:
    """For the rings that a producer fills, in launches in which it waits for some to be given back for good:
    the place of the first statement of the producer that names them, and of that wait, None where there is
    none. It tells of the first phase of a ring's only stage (`later_tiles`)."""
    returns = {stmt.barrier: stmt.tiles for stmt in walk(launch.body) if isinstance(stmt, GiveBack)}
    found: dict[Var, tuple[int, int | None]] = {}
    for group in (stmt for stmt in launch.body if isinstance(stmt, Group) and not _gives_back(stmt)):
        ends = {
            tile: place
            for place, stmt in enumerate(group.body)
            if isinstance(stmt, WaitPhase) and int_value(stmt.parity) == 0
            for tile in returns.get(stmt.barrier, ())
        }
        named = [used((stmt,)) for stmt in group.body]
        tiles = set().union(*named) & rings_of(launch) if ends else set()
        found |= {tile: (_first(tile, named), ends.get(tile)) for tile in tiles}
    return found


def _first(tile: Var, named: list[set[Var]]) -> int:
    return next(place for place, tiles in enumerate(named) if tile in tiles)


def _meets(group: Group, launch: Launch, count: int, rings: Set[Var]) -> bool:
    """Whether a group comes to a barrier of ``count`` threads between its last use of rings and its next one
    of shared memory."""
    last = max(place for place, stmt in enumerate(group.body) if used((stmt,)) & rings)
    rest = group.body[last + 1 :]
    own = [stmt for stmt in rest if isinstance(stmt, Arrive) and _arrivals(stmt, launch) == count]
    for stmt in rest:
        if isinstance(stmt, Sync) and stmt.count == count:
            return True
        if isinstance(stmt, WaitPhase) and any(_is_of(stmt, arrival) for arrival in own):
            return True
        if any(tile.scope() == "shared.dyn" for tile in used((stmt,))):
            return False
    return False


def _arrivals(stmt: Arrive, launch: Launch) -> int | None:
    """How many threads arrive in a phase of a barrier; None where its place is not known."""
    place, all_of = int_value(stmt.index), tuple(walk(launch.body))
    counts = {each.buffer: each.counts for each in all_of if isinstance(each, AllocBarrier)}
    counts |= {each.barrier: each.counts for each in all_of if isinstance(each, InitBarriers)}
    return None if place is None or stmt.barrier not in counts else counts[stmt.barrier][place]


def _is_of(wait: WaitPhase, arrival: Arrive) -> bool:
    """Whether threads wait for the barrier at which they have arrived."""
    return bool(wait.barrier.same_as(arrival.barrier)) and same(wait.index, arrival.index)


def used_behind(block: Block, rings: Set[Var]) -> set[Var]:
    """The shared tiles that a block first uses behind its last use of ``rings``, in a branch, too, where that
    alone uses them. Not those that other blocks of a cluster write, which may be done with their rings
    earlier."""
    users = [place for place, stmt in enumerate(block) if used((stmt,)) & rings]
    if not users:
        return set()
    last = max(users[-1], _last_wait(block))
    found = used(block[last + 1 :]) - used(block[: last + 1])
    if len(users) == 1 and isinstance(block[last], If):
        sides = children(block[last])
        for number, side in enumerate(sides):
            others = used((*block[:last], *block[last + 1 :], *sides[1 - number]))
            found |= used_behind(side, rings) - others
    return {tile for tile in found - _written_by_others(block) if tile.scope() == "shared.dyn"}


def _last_wait(block: Block) -> int:
    """The last statement of a block that waits for products of tcgen05, which read rings until then; -1 where
    there are none."""
    commits = (stmt for stmt in walk(block) if isinstance(stmt, TensorCommit))
    done = {stmt.barrier for stmt in commits if not stmt.tiles}
    waits = (_waits(stmt, done) for stmt in block)
    return max((place for place, holds in enumerate(waits) if holds), default=-1)


def _waits(stmt: Stmt, barriers: Set[Var]) -> bool:
    return any(isinstance(inner, WaitPhase) and inner.barrier in barriers for inner in walk((stmt,)))


def _written_by_others(block: Block) -> set[Var]:
    """The tiles of a block that another block of its cluster may write."""
    found = (stmt for stmt in walk(block) if isinstance(stmt, (ClusterCopy, RemoteStore)))
    return {buffer for stmt in found for buffer in written(stmt)}


def used(block: Iterable[Stmt]) -> set[Var]:
    """The buffers that statements name, all but their allocations."""
    inside = (stmt for stmt in walk(tuple(block)) if not isinstance(stmt, Alloc))
    return {buffer for stmt in inside for buffer in (*buffers(stmt), *scratch(stmt))}


def _gives_back(group: Group) -> bool:
    return any(isinstance(stmt, _RETURNS) for stmt in walk(group.body))
