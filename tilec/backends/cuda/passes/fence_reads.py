"""Fences between what threads read in shared memory and TMA, which overwrites it.

Loads of threads wait their turn behind cp.async of others, arrivals at barriers and TMA do not: on an H200
the last of eight loads found what a ring's slot held two trips later. Behind a proxy fence they are done.
Where no thread starts cp.async there are none, though the PTX ISA asks for them: nothing was seen to hold
loads up for as long as TMA takes (kernels of tests/kernels/idioms give the same in two runs), and fences cost
up to 9 % (8-bit products whose operands are stored across K), 7 % (gradients of attention, heads of 64).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.units import tiles_filled_by_units
from tilec.backends.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    BoxLoad,
    GiveBack,
    HeldProduct,
    ProxyFence,
    TensorCommit,
    TensorProduct,
    TensorStore,
    ThreadLoop,
    WaitLanded,
    WarpgroupProduct,
)
from tilec.backends.cuda.passes.place_shared import sharing
from tilec.ir.nodes import Assume, Bind, Block, Launch, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import Arrive, NamedArrive
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import read
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var

_FENCES = (ProxyFence, WaitLanded)
#: What tells others that this thread is done.
_SIGNALS = (Arrive, GiveBack, NamedArrive, Sync)
#: What reads or writes tiles without the threads.
_UNITS = (BoxLoad, HeldProduct, TensorCommit, TensorProduct, TensorStore, WarpgroupProduct)


class FenceReads(LaunchPass):
    """In: barriers between threads, rings that are given back. Out: where threads start cp.async, a
    ProxyFence between reads from what TMA fills and the barrier that lets it be filled again, unless there is
    one; a ring is given back behind the next fence where that follows."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its fences."""
        filled = tiles_filled_by_units(launch.body)
        if not filled or not any(isinstance(stmt, (AsyncCopy, AsyncGather)) for stmt in walk(launch.body)):
            return launch
        shared = sharing(launch.body)
        beside = {other for tile in filled for other in shared.get(tile, ())}
        return replace(launch, body=_fenced(launch.body, filled | beside))


def _fenced(block: Block, filled: Set[Var]) -> Block:
    """A block with a fence in front of signals that need one."""
    made: list[Stmt] = []
    late: list[Stmt] = []
    for position, stmt in enumerate(block):
        if _is_open(stmt, made, filled):
            if _may_wait(stmt, block, position):
                late.append(stmt)
                continue
            made.append(ProxyFence(loc=stmt.loc))
        made.append(_inside(stmt, filled))
        if isinstance(stmt, _FENCES):
            made += late
            late = []
    return tuple(made)


def _inside(stmt: Stmt, filled: Set[Var]) -> Stmt:
    if isinstance(stmt, (ThreadLoop, AsyncGather)):
        return stmt
    return with_children(stmt, [_fenced(inner, filled) for inner in children(stmt)])


def _is_open(stmt: Stmt, before: list[Stmt], filled: Set[Var]) -> bool:
    """Whether threads have read from what is filled again, and no fence stands between that and a signal. A
    ring that is given back they have read, wherever that stands."""
    if not isinstance(stmt, _SIGNALS):
        return False
    given = stmt if isinstance(stmt, GiveBack) else None
    if given is not None and given.once:
        return False
    tiles = filled if given is None else filled & set(given.tiles)
    for earlier in reversed(before):
        if isinstance(earlier, _FENCES):
            return False
        if _reads(earlier, tiles):
            return True
    return given is not None and bool(tiles)


def _reads(stmt: Stmt, tiles: Set[Var]) -> bool:
    return any(not isinstance(inner, _UNITS) and tiles & set(read(inner)) for inner in walk((stmt,)))


def _may_wait(stmt: Stmt, block: Block, position: int) -> bool:
    """Whether a ring may be given back behind a fence that follows at once: the wait that comes with one is
    for a load of this trip, which stands in front of the ring's next one where the trip uses it once."""
    if not isinstance(stmt, GiveBack):
        return False
    rest = (each for each in block[position + 1 :] if not isinstance(each, (Assume, Bind, GiveBack)))
    given = sum(isinstance(each, GiveBack) and each.barrier.same_as(stmt.barrier) for each in block)
    return given == 1 and isinstance(next(rest, None), _FENCES)
