"""Statements that GPUs other than NVIDIA's, or older ones, have nothing for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.limits import has_tma
from tilec.errors import UnsupportedError
from tilec.ir.nodes import Check, Kernel, Print, Stmt, walk
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

if TYPE_CHECKING:
    from tilec.targets import Target


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
