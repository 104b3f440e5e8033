"""Shared tiles that are first used when a launch is done with its rings, whose bytes they may take."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import EachTile, GiveBack, RemoteStore
from tilec.ir.nodes import Alloc, Block, If, Launch, Stmt, children, walk
from tilec.ir.nodes.barriers import ClusterCopy, Group
from tilec.ir.traits import buffers, scratch, written

if TYPE_CHECKING:
    from tvm.ir import Var


def rings_of(launch: Launch) -> set[Var]:
    """The tiles of a launch that go back to a producer."""
    return {tile for stmt in walk(launch.body) if isinstance(stmt, GiveBack) for tile in stmt.tiles}


def behind_rings(launch: Launch) -> set[Var]:
    """The shared tiles that consumers first use behind their last use of a ring, none where a block takes
    several tiles of the grid, whose loads run ahead. Consumers have waited for everything that was brought by
    then."""
    rings = rings_of(launch)
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group) and _gives_back(stmt)]
    if len(groups) != 1 or any(isinstance(stmt, EachTile) for stmt in walk(launch.body)):
        return set()
    (consumers,) = groups
    others = used(stmt for stmt in launch.body if stmt is not consumers)
    return used_behind(consumers.body, rings) - others


def used_behind(block: Block, rings: Set[Var]) -> set[Var]:
    """The shared tiles that a block first uses behind its last use of ``rings``, in a branch, too, where that
    alone uses them. Not those that other blocks of a cluster write, which may be done with their rings
    earlier."""
    users = [place for place, stmt in enumerate(block) if used((stmt,)) & rings]
    if not users:
        return set()
    last = users[-1]
    found = used(block[last + 1 :]) - used(block[: last + 1])
    if len(users) == 1 and isinstance(block[last], If):
        sides = children(block[last])
        for number, side in enumerate(sides):
            others = used((*block[:last], *block[last + 1 :], *sides[1 - number]))
            found |= used_behind(side, rings) - others
    return {tile for tile in found - _written_by_others(block) if tile.scope() == "shared.dyn"}


def _written_by_others(block: Block) -> set[Var]:
    """The tiles of a block that another block of its cluster may write."""
    found = (stmt for stmt in walk(block) if isinstance(stmt, (ClusterCopy, RemoteStore)))
    return {buffer for stmt in found for buffer in written(stmt)}


def used(block: Iterable[Stmt]) -> set[Var]:
    """The buffers that statements name, all but their allocations."""
    inside = (stmt for stmt in walk(tuple(block)) if not isinstance(stmt, Alloc))
    return {buffer for stmt in inside for buffer in (*buffers(stmt), *scratch(stmt))}


def _gives_back(group: Group) -> bool:
    return any(isinstance(stmt, GiveBack) for stmt in walk(group.body))
