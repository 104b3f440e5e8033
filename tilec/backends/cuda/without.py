"""Statements that GPUs other than NVIDIA's, or older ones, have nothing for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cuda.limits import has_tma
from tilec.dtypes import lookup
from tilec.errors import Kind, UnsupportedError
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Check, Kernel, Print, Stmt, walk
from tilec.ir.nodes.barriers import (
    AllocBarrier,
    Arrive,
    BulkLoad,
    ClusterBarrier,
    ClusterCopy,
    ExpectBytes,
    GridBarrier,
)
from tilec.ir.places import place_of
from tilec.targets import MOST_REGISTERS

if TYPE_CHECKING:
    from tilec.targets import Target

#: Words of a fragment that a thread has at most: with 2048 NVRTC took more than a minute.
_MOST_WORDS = 16 * MOST_REGISTERS


def refuse_nvidia_alone(kernel: Kernel, gpu: str) -> None:
    """UnsupportedError for a line or a check, as there is no printf, and for a barrier of the grid. ``gpu``:
    `Family.word`."""
    for stmt in walk(kernel.body):
        if isinstance(stmt, (Print, Check)):
            raise _without_printf(stmt, gpu)
        if isinstance(stmt, GridBarrier):
            raise _without_grid_barriers(stmt, gpu)


def refuse_newer(kernel: Kernel, target: Target) -> None:
    """UnsupportedError for what begins with sm_90, on other targets: blocks of a cluster that wait for each
    other or copy to each other, and barriers that count bytes."""
    if has_tma(target):
        return
    for stmt in walk(kernel.body):
        if _is_of_clusters(stmt):
            raise _without_clusters(stmt, target)
        if _counts_bytes(stmt):
            raise _without_byte_counts(stmt, target)


def refuse_large_fragments(kernel: Kernel) -> None:
    """UnsupportedError for a fragment of which a thread would hold many times what it has registers for: code
    names each of them, one by one, and compilers do not come to an end with it."""
    for launch in kernel.launches:
        threads = math.prod(launch.threads) * (launch.schedule.split_row or 1)
        for stmt in walk(launch.body):
            words = _words(stmt) // threads
            if words > _MOST_WORDS:
                raise _without_room(stmt, words, math.prod(launch.threads))


def _words(stmt: Stmt) -> int:
    """Of 32 bits, all that a fragment of known extents has; 0 for other statements."""
    if not isinstance(stmt, Alloc) or stmt.buffer.scope() != "local.fragment":
        return 0
    extents = [int_value(extent) for extent in stmt.buffer.shape]
    known = [extent for extent in extents if extent is not None]
    bits = lookup(str(stmt.buffer.dtype)).bits
    return math.prod(known) * bits // 32 if len(known) == len(extents) else 0


def _without_room(stmt: Stmt, words: int, threads: int) -> UnsupportedError:
    return UnsupportedError(
        f"a fragment of which each of {threads} threads holds {words} words of 32 bits, on a GPU",
        place=place_of(stmt, "T.alloc_fragment"),
        why=f"a thread has {MOST_REGISTERS} registers, and memory of its own for {_MOST_WORDS} words at most",
        remedy="make the tile smaller in the config for that target, or give T.Kernel more threads",
        kind=Kind.REGISTERS,
    )


def _is_of_clusters(stmt: Stmt) -> bool:
    if isinstance(stmt, AllocBarrier):
        return stmt.cluster
    if isinstance(stmt, Arrive):
        return stmt.block is not None
    return isinstance(stmt, (ClusterBarrier, ClusterCopy))


def _counts_bytes(stmt: Stmt) -> bool:
    if isinstance(stmt, Arrive):
        return stmt.expect is not None
    return isinstance(stmt, (BulkLoad, ExpectBytes))


def _without_clusters(stmt: Stmt, target: Target) -> UnsupportedError:
    what = "T.copy_cluster" if isinstance(stmt, ClusterCopy) else "barriers of clusters"
    return UnsupportedError(
        f"{what} on {target.name}: blocks form clusters from sm_90 on",
        place=place_of(stmt),
        remedy="build for sm_90a, or let each block work for itself",
    )


def _without_byte_counts(stmt: Stmt, target: Target) -> UnsupportedError:
    construct = "T.tma_copy" if isinstance(stmt, BulkLoad) else "T.mbarrier_expect_tx"
    return UnsupportedError(
        f"{construct} on {target.name}: barriers count bytes from sm_90 on",
        place=place_of(stmt, construct),
        remedy="use T.copy, which is complete when it ends, and arrive behind it",
    )


def _without_printf(stmt: Print | Check, gpu: str) -> UnsupportedError:
    name = "T.print" if isinstance(stmt, Print) else "T.device_assert"
    return UnsupportedError(
        f"{name} on an {gpu}",
        place=place_of(stmt, name),
        why="its code has nothing that writes a line",
        remedy="look into the kernel on a CPU or with CUDA; libraries drop it unless `debug` is true",
    )


def _without_grid_barriers(stmt: Stmt, gpu: str) -> UnsupportedError:
    return UnsupportedError(
        f"blocks that wait for each other, on an {gpu}",
        place=place_of(stmt, "T.sync_grid"),
        remedy="split the kernel at T.sync_grid into two T.Kernel",
    )
