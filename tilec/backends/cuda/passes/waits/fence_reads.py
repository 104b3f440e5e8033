"""Fences between what threads read in shared memory and TMA, which overwrites it.

Loads of threads wait their turn behind those of others, arrivals at barriers and TMA do not: on an H200 the
last of eight loads found what a ring's slot held two trips later, beside cp.async, and on an H100 the last
eight of 32 loads of bytes in 69 of a million results, beside scattered loads from global memory. Behind a
proxy fence they are done, and the PTX ISA asks for one (section "Async proxy").

None stands behind what lanes read for a product alone, where no thread starts cp.async: that is waited for
before its ring is given back, and it began with what they had read.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.units import tiles_filled_by_units
from tilec.backends.cuda.nodes import (
    AsyncCopy,
    AsyncGather,
    BoxLoad,
    BringOperand,
    BringPlaces,
    GiveBack,
    HeldProduct,
    ProductsWait,
    ProxyFence,
    TensorCommit,
    TensorProduct,
    TensorStore,
    ThreadLoop,
    WaitLanded,
    WarpgroupProduct,
)
from tilec.backends.cuda.passes.waits.place_shared import sharing
from tilec.ir.nodes import Assume, Bind, Block, Launch, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import Arrive, Group, NamedArrive
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import read
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Var

_FENCES = (ProxyFence, WaitLanded)
#: What tells others that this thread is done.
_SIGNALS = (Arrive, GiveBack, NamedArrive, Sync)
#: What reads or writes tiles without the threads, or by them for a product that is waited for.
_UNITS = (
    BoxLoad,
    BringOperand,
    BringPlaces,
    HeldProduct,
    ProductsWait,
    TensorCommit,
    TensorProduct,
    TensorStore,
    WarpgroupProduct,
)


class FenceReads(LaunchPass):
    """In: barriers between threads, rings that are given back. Out: a ProxyFence between reads from what TMA
    fills and the arrival that lets it be filled again, unless there is one; a ring is given back behind the
    next fence where that follows. Where threads start cp.async barriers between threads have one, too. What a
    warpgroup gives back at once, and its warps have read, it meets for."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its fences."""
        filled = tiles_filled_by_units(launch.body)
        if not filled:
            return launch
        shared = sharing(launch.body)
        beside = {other for tile in filled for other in shared.get(tile, ())}
        starts = any(isinstance(stmt, (AsyncCopy, AsyncGather)) for stmt in walk(launch.body))
        fences = _Fences(filled | beside, starts, _read_by_threads(launch.body, starts))
        return replace(launch, body=fences.block(launch.body))


@dataclass(frozen=True)
class _Fences:
    """Fences for reads from what TMA has ``filled``, in front of barriers between threads, too, where these
    ``meet``; ``read`` are the tiles that threads read by themselves."""

    filled: Set[Var]
    meet: bool
    read: Set[Var]

    def block(self, block: Block) -> Block:
        """A block with a fence in front of signals that need one."""
        made: list[Stmt] = []
        late: list[Stmt] = []
        for position, stmt in enumerate(block):
            if self._is_open(stmt, made):
                if _may_wait(stmt, block, position):
                    late.append(stmt)
                    continue
                made.append(ProxyFence(loc=stmt.loc))
                if isinstance(stmt, GiveBack) and stmt.once:
                    made.append(Sync("threads", loc=stmt.loc))
            made.append(self._inside(stmt))
            if isinstance(stmt, _FENCES):
                made += late
                late = []
        return tuple(made)

    def _inside(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, (ThreadLoop, AsyncGather)):
            return stmt
        own = replace(self, read=_read_by_threads(stmt.body, self.meet)) if isinstance(stmt, Group) else self
        return with_children(stmt, [own.block(inner) for inner in children(stmt)])

    def _is_open(self, stmt: Stmt, before: list[Stmt]) -> bool:
        """Whether threads have read from what is filled again, and no fence stands between that and a signal.
        A ring that is given back they have read, wherever that stands."""
        given = stmt if isinstance(stmt, GiveBack) else None
        if not isinstance(stmt, _SIGNALS) or (given is None and not self.meet):
            return False
        tiles = self.filled & self.read
        if given is not None:
            tiles &= set(given.tiles)
        for earlier in reversed(before):
            if isinstance(earlier, _FENCES):
                return False
            if tiles & _read_by_threads((earlier,), self.meet):
                return True
        return given is not None and bool(tiles)


def _read_by_threads(block: Block, starts: bool) -> set[Var]:
    """The buffers that threads read by themselves: what they bring for a product, too, where they start
    cp.async, behind which loads were seen to wait."""
    own = {
        buffer for stmt in walk(block) if not isinstance(stmt, (*_UNITS, GiveBack)) for buffer in read(stmt)
    }
    return own | set(_brought(block)) if starts else own


def _brought(block: Block) -> Iterator[Var]:
    """What threads read for products that are waited for."""
    for stmt in walk(block):
        if isinstance(stmt, BringOperand):
            yield stmt.a.buffer
        elif isinstance(stmt, BringPlaces):
            yield stmt.e.buffer


def _may_wait(stmt: Stmt, block: Block, position: int) -> bool:
    """Whether a ring may be given back behind a fence that follows at once: the wait that comes with one is
    for a load of this trip, which stands in front of the ring's next one where the trip uses it once."""
    if not isinstance(stmt, GiveBack):
        return False
    rest = (each for each in block[position + 1 :] if not isinstance(each, (Assume, Bind, GiveBack)))
    given = sum(isinstance(each, GiveBack) and each.barrier.same_as(stmt.barrier) for each in block)
    return given == 1 and isinstance(next(rest, None), _FENCES)
