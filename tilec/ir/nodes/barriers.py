"""Statements of kernels that split their warps by hand: groups of threads and the barriers between them.

A `Group` is code of some consecutive threads of a block; what it does collectively (Copy, Gemm, Parallel and
their like), its threads do among themselves. Barriers count arrivals in phases 0, 1, 2, ...: a phase ends
with its last arrival, and the next one begins. Statements without a group are those of all threads of the
block.

    Stmt |= Group | AllocBarrier | Arrive | ExpectBytes | WaitPhase | NamedArrive | ClusterBarrier
          | GridBarrier | ClusterCopy | BulkLoad | SetRegisters | WaitProducts
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.hints import Hints
from tilec.ir.stmt import At, Block, Defines, Region, Signals, Stmt, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.stmt import Buffer

#: Threads that `T.ws` counts by, and a warp's.
WARPGROUP, WARP = 128, 32
#: The scope of barriers' buffers: one uint64 for each barrier.
SCOPE = "shared.barrier"
CLUSTER_KINDS = ("arrive", "arrive_relaxed", "wait")


@dataclass(frozen=True, eq=False)
class Group(Stmt):
    """The threads ``first`` to ``first + count - 1`` (multiples of a warp, in the order x, y, z) run
    ``body``; the others of the block pass by."""

    syntax = "thread_group(first, count)"

    first: int
    count: int
    body: Block


@dataclass(frozen=True, eq=False)
class AllocBarrier(Stmt):
    """Barriers of the block, in phase 0: ``buffer`` has one element (uint64, scope `SCOPE`) for each of
    ``counts``, the arrivals that a phase takes. ``cluster``: blocks of a cluster arrive at each other's."""

    syntax = "alloc_barriers(counts, cluster=)"

    buffer: Defines[Buffer]
    counts: tuple[int, ...]
    cluster: bool = False

    @staticmethod
    def declared(counts: tuple[int, ...], **_: object) -> tuple[object, ...]:
        """The dtype, shape and scope of ``buffer``."""
        return "uint64", [len(counts)], SCOPE


@dataclass(frozen=True, eq=False)
class Arrive(Stmt):
    """Each thread that runs it arrives once at ``barrier[index]``: of its own block, or of the block of rank
    ``block`` in its cluster. With ``expect`` it announces so many bytes before."""

    syntax = "barrier_arrive(barrier[index], expect=, block=)"

    barrier: Signals[Buffer]
    index: At[Expr]
    expect: Expr | None = None
    block: Expr | None = None


@dataclass(frozen=True, eq=False)
class ExpectBytes(Stmt):
    """The phase of ``barrier[index]`` also waits for ``count`` bytes of bulk loads."""

    syntax = "barrier_expect(barrier[index], count)"

    barrier: Signals[Buffer]
    index: At[Expr]
    count: Expr


@dataclass(frozen=True, eq=False)
class WaitPhase(Stmt):
    """Waits while the phase under way of ``barrier[index]`` has this ``parity`` (0 or 1): on a fresh barrier
    1 passes at once, 0 waits for the end of phase 0."""

    syntax = "barrier_wait(barrier[index], parity)"

    barrier: Signals[Buffer]
    index: At[Expr]
    parity: Expr


@dataclass(frozen=True, eq=False)
class NamedArrive(Stmt):
    """Comes to the named barrier ``number`` of the block, which waits for ``count`` threads, and goes on.
    Those who wait are at a `tilec.ir.nodes.threads.Sync` of the same number and count."""

    syntax = "named_arrive(number, count)"

    number: int
    count: int


@dataclass(frozen=True, eq=False)
class ClusterBarrier(Stmt):
    """The barrier of the blocks of a cluster; kind: "arrive" (come to it and go on; those who wait see what
    was written before), "arrive_relaxed" (without that) or "wait"."""

    syntax = "cluster_barrier(kind)"

    kind: str


@dataclass(frozen=True, eq=False)
class GridBarrier(Stmt):
    """The barrier of all blocks of the launch, whose threads meet before and behind it: all see what each
    wrote before."""


@dataclass(frozen=True, eq=False)
class ClusterCopy(Stmt):
    """``dst = src`` as a Copy, or into ``dst`` of the block of rank ``block`` in its cluster, where it is a
    shared tile: complete behind one arrival at ``barrier[index]`` of that block, where there is a barrier."""

    syntax = "cluster_copy(src, dst, block=, barrier[index]=, hints=)"

    src: Region
    dst: Writes[Region]
    block: Expr | None = None
    barrier: Signals[Buffer | None] = None
    index: At[Expr | None] = None
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, eq=False)
class BulkLoad(Stmt):
    """``dst = src`` as a Copy, from global into shared memory. It is complete for those who wait for the
    phase of ``barrier[index]`` that is under way; no one may rely on it earlier, or on its coming later.
    ``alone``: a single thread runs it."""

    syntax = "bulk_load(src, dst, barrier[index], alone=, hints=)"

    src: Region
    dst: Writes[Region]
    barrier: Signals[Buffer]
    index: At[Expr]
    alone: bool = False
    hints: Hints = field(default_factory=Hints)


@dataclass(frozen=True, eq=False)
class SetRegisters(Stmt):
    """Each thread of the warpgroups that run it has ``count`` registers from here on (setmaxnreg)."""

    syntax = "set_registers(count, more=!)"

    count: int
    more: bool


@dataclass(frozen=True, eq=False)
class WaitProducts(Stmt):
    """What arrives at barriers from here on tells of all products but the last ``pending``: these may be
    under way."""

    syntax = "wait_products(pending)"

    pending: int
