"""Where the thread that stores tiles by TMA waits until they have been read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import (
    REPEATING,
    DrainStores,
    GiveBack,
    GridMeet,
    Sync,
    TensorStore,
    ThreadLoop,
    WarpSync,
)
from tilec.ir.nodes import (
    Block,
    Break,
    Continue,
    Launch,
    Stmt,
    children,
    threads,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Arrive, ClusterBarrier, Group, NamedArrive
from tilec.ir.traits import scratch
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

#: What tells other threads that this one is done with what it did, or ends what it does here.
_TELLING = (Sync, threads.Sync, threads.Lane, WarpSync, GridMeet, Arrive, NamedArrive, ClusterBarrier, Group,
            Break, Continue)  # fmt: skip

Left = frozenset["Var"]
_NOTHING: Left = frozenset()


class PlaceDrains(LaunchPass):
    """In: TensorStores and barriers. Out: DrainStores before the first barrier behind a store, in its loop's
    next trip too, before its tile goes back to a producer, and where a group or the launch ends: the store
    reads its tile while threads go on up to there."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its waits."""
        if not any(isinstance(stmt, TensorStore) for stmt in walk(launch.body)):
            return launch
        return replace(launch, body=_closed(launch.body))


def _closed(block: Block) -> Block:
    """A block at whose end no store reads."""
    made, left = _opened(block, _NOTHING)
    return (*made, DrainStores()) if left else made


def _opened(block: Block, left: Left) -> tuple[Block, Left]:
    """A block with its waits; ``left`` are the tiles that stores may be reading before it, and behind it."""
    made: list[Stmt] = []
    for stmt in block:
        if left and _tells(stmt, left):
            made.append(DrainStores())
            left = _NOTHING
        new, left = _inside(stmt, left)
        made.append(new)
        if isinstance(stmt, TensorStore) and not stmt.complete:
            left |= {stmt.src.buffer}
    return tuple(made), left


def _inside(stmt: Stmt, left: Left) -> tuple[Stmt, Left]:
    """A statement with the waits inside of it."""
    if isinstance(stmt, ThreadLoop) or not children(stmt):
        return stmt, left
    if isinstance(stmt, Group):
        return with_children(stmt, [_closed(inner) for inner in children(stmt)]), left
    before = left
    if isinstance(stmt, REPEATING):
        before = left.union(*(_opened(inner, left)[1] for inner in children(stmt)))
    sides = [_opened(inner, before) for inner in children(stmt)]
    return with_children(stmt, [made for made, _ in sides]), before.union(*(after for _, after in sides))


def _tells(stmt: Stmt, left: Set[Var]) -> bool:
    """Whether others may write the tiles of stores behind a statement."""
    if isinstance(stmt, GiveBack):
        return bool(set(stmt.tiles) & left)
    return isinstance(stmt, _TELLING) or bool(scratch(stmt))
