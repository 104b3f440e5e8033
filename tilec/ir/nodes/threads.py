"""Thread-level statements of the tile IR: what threads of one block say to each other.

They stand in launches that name their threads (``Launch.thread_vars``). There every statement outside of a
Parallel runs on each thread, and ``local`` and ``local.var`` storage is a thread's own. Copy, Fill, Gemm,
Reduce, Scan and Parallel stay statements of the block, or of the threads that meet there: what they read of a
thread's own values is the same in all of these threads, and what they write to a thread's own storage every
one of them gets. A warp is 32 threads that follow each other in the order x, y, z.

    Stmt |= Sync | Return | Lane | ThreadReduce | LaneMma | LaneSparseMma | LaneLoad
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.stmt import At, Defines, Operands, Stmt, Updates, Writes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer

WARP = 32
#: Storage of which every thread has its own.
PER_THREAD = ("local", "local.var")

#: Shuffles take a value and a lane (xor: a mask, up and down: a distance).
SHUFFLES = ("shfl", "shfl_xor", "shfl_up", "shfl_down")
#: Votes of a warp -> dtype of the result; "active" takes nothing, "match" a value, the others a condition.
VOTES = {
    "any": "int32",
    "all": "int32",
    "ballot": "uint64",
    "active": "uint64",
    "match_any": "uint32",
    "match_all": "uint32",
}
#: Reductions over a warp; every lane gets the result.
WARP_REDUCTIONS = ("warp_sum", "warp_max", "warp_min", "warp_bitand", "warp_bitor")
#: Votes of the whole block, which are barriers too; int32.
BLOCK_VOTES = ("block_count", "block_and", "block_or")
LANE_KINDS = (*SHUFFLES, *VOTES, *WARP_REDUCTIONS, *BLOCK_VOTES)
SYNC_KINDS = ("threads", "warp")


@dataclass(frozen=True, eq=False)
class Sync(Stmt):
    """A barrier of the block ("threads") or of a warp ("warp"). ``barrier`` is the number of a named barrier
    of ``count`` threads."""

    syntax = "sync(kind, barrier=, count=)"

    kind: str
    barrier: int | None = None
    count: int | None = None

    def is_of_all(self, threads: int) -> bool:
        """Whether all ``threads`` of a block meet there."""
        return self.kind == "threads" and self.count in (None, threads)


@dataclass(frozen=True, eq=False)
class Return(Stmt):
    """Ends the threads that run it."""

    syntax = "thread_return()"


@dataclass(frozen=True, eq=False)
class Lane(Stmt):
    """``var`` = what a thread gets from the threads that run the statement with it; kind: one of LANE_KINDS.

    A shuffle works in groups of ``width`` lanes; a source lane outside of the group (for "shfl_xor": behind
    it), or one that does not take part, gives a thread its own value. ``mask`` (uint32; None: all) names the
    lanes that meet."""

    syntax = "lane_{kind}(*operands, width=, mask=)"
    kinds = LANE_KINDS

    kind: str
    var: Defines[Var]
    operands: tuple[Expr, ...]
    width: int = WARP
    mask: Expr | None = None

    @staticmethod
    def declared(kind: str, operands: tuple[Expr, ...], **_: object) -> tuple[str, ...]:
        """The dtype of ``var``."""
        return (lane_dtype(kind, tuple(str(operand.ty.dtype) for operand in operands)),)


@dataclass(frozen=True, eq=False)
class ThreadReduce(Stmt):
    """``buffer[indices]`` = ``combine`` over the threads along ``axes`` (0, 1, 2 for x, y, z) of ``value``
    where ``cond`` holds, else ``identity``; every thread along the axes gets it. ``combine`` is an expression
    over the two ``vars``; the order of the threads is open. A barrier of the block, too."""

    syntax = "buffer[indices] = thread_reduce(combine, identity, value, cond, axes=)"

    vars: Operands[tuple[Var, Var]]
    combine: Expr
    identity: Expr
    value: Expr
    cond: Expr
    buffer: Writes[Buffer]
    indices: At[tuple[Expr, ...]]
    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LaneMma(Stmt):
    """C += A B by the lanes of a warp: mma.sync of ``shape`` ("m16n8k16") on what each lane holds of them
    (`tilec.ir.analysis.threads.fragments`). ``buffer[indices]`` is its first sum, ``a`` and ``b`` read the
    first elements of its operands; the others follow along the last axes. ``lane``: its number, int32."""

    syntax = "lane_mma(buffer[indices], a, b, lane, shape=)"
    instruction = "mma.sync"

    shape: str
    buffer: Updates[Buffer]
    indices: At[tuple[Expr, ...]]
    a: Expr
    b: Expr
    lane: Expr


@dataclass(frozen=True, eq=False)
class LaneSparseMma(LaneMma):
    """A LaneMma whose A has two values in each group of four along K: mma.sp. ``a`` holds those alone, ``e``
    reads a word (int32 or uint32) with the places of eight pairs of them, as `SparseGemm` has them, the first
    one in front; ``selector`` says which lanes of each four give theirs
    (`tilec.ir.analysis.threads.fragments`)."""

    syntax = "lane_mma_sp(buffer[indices], a, b, lane, e, shape=, selector=)"
    instruction = "mma.sp"

    e: Expr
    selector: int


@dataclass(frozen=True, eq=False)
class LaneLoad(Stmt):
    """ldmatrix: each lane gets 4 bytes of each of ``count`` matrices of eight rows of 16 bytes of shared
    memory, from ``buffer[indices]`` on. ``source`` reads the first element of the row that a lane names: lane
    8 i + r row r of matrix i. Of each matrix it gets the bytes from 4 (lane % 4) on of row lane // 4, or,
    ``trans``, of 16-bit elements those of column lane // 4 in the rows 2 (lane % 4) and behind it."""

    syntax = "lane_load(buffer[indices], source, lane, count=, trans=!)"

    buffer: Writes[Buffer]
    indices: At[tuple[Expr, ...]]
    source: Expr
    count: int
    trans: bool
    lane: Expr


#: What the lanes of a warp do together with what each of them holds.
LANE_PRODUCTS = (LaneMma, LaneLoad)


def lane_dtype(kind: str, operands: tuple[str, ...]) -> str:
    """The dtype of a `Lane` of operands of these dtypes."""
    if kind in VOTES:
        return VOTES[kind]
    return "int32" if kind in BLOCK_VOTES else operands[0]
