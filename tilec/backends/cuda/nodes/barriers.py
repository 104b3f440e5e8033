"""Where threads wait for each other, and what they tell each other to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.nodes.barriers import Arrive, WaitPhase
from tilec.ir.stmt import At, Signals, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class Sync(Stmt):
    """A barrier of all threads of the block."""

    syntax = "sync_threads()"


@dataclass(frozen=True, eq=False)
class SharedSync(Sync):
    """A barrier of all threads of the block that orders shared memory alone: loads of global memory stay
    under way."""

    syntax = "sync_shared()"


@dataclass(frozen=True, eq=False)
class WarpSync(Stmt):
    """The lanes of ``mask`` of one warp, which all run it, see what each of them wrote."""

    mask: int


@dataclass(frozen=True, eq=False)
class ProxyFence(Stmt):
    """What the threads that run it have written to shared memory is seen by wgmma and TMA behind the next
    barrier."""

    syntax = "proxy_fence()"


@dataclass(frozen=True, eq=False)
class InitBarriers(Stmt):
    """Barriers begin their first phase: ``barrier`` is a buffer of them, ``counts`` the arrivals that a phase
    of each takes. Other threads may use them behind a Sync."""

    barrier: Signals[Buffer]
    counts: tuple[int, ...]
    cluster: bool = False


@dataclass(frozen=True, eq=False)
class CompleteBytes(Stmt):
    """``count`` of the bytes that the phase of ``barrier[index]`` waits for are there. ``alone``: a single
    thread runs it; else one of them says so for those that have met at a Sync."""

    syntax = "complete_bytes(barrier[index], count, alone=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    count: int
    alone: bool = False


@dataclass(frozen=True, eq=False)
class ArriveOnce(Arrive):
    """An Arrive of one thread for all that run it."""

    syntax = "arrive_once(barrier[index], expect=, block=)"


@dataclass(frozen=True, eq=False)
class ArriveLanded(Arrive):
    """An Arrive of each thread that runs it, as soon as all of its asynchronous copies so far are
    complete."""

    syntax = "arrive_landed(barrier[index])"


@dataclass(frozen=True, eq=False)
class WaitLanded(WaitPhase):
    """A WaitPhase for asynchronous copies of other threads, which wgmma reads behind it."""

    syntax = "wait_landed(barrier[index], parity)"


@dataclass(frozen=True, eq=False)
class GiveBack(Stmt):
    """The warps that run it are done with ``tiles``, whose loads may overwrite them: an arrival at
    ``barrier[index]``, of a thread for each warpgroup where products alone have read them (``once``), else of
    one for each warp. Behind the products that read the tiles, wherever it stands; without tiles, which hands
    a turn on, where it stands."""

    syntax = "give_back(barrier[index], *tiles, once=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    tiles: tuple[Buffer, ...]
    once: bool = True


@dataclass(frozen=True, eq=False)
class GridMeet(Stmt):
    """The threads of a block meet, one of them waits at ``arrivals`` (one uint32 in global memory) for those
    of all other blocks, and they meet again."""

    arrivals: Signals[Buffer]
