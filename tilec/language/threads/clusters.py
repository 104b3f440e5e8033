"""Clusters of blocks: their shape, a block's place in one, and the barrier that its blocks share."""

from __future__ import annotations

from typing import Any

from tilec.ir.nodes import barriers as ir
from tilec.language.threads.launches import Kernel, current_launch, get_block_binding, get_block_extent
from tilec.language.values.functions.integers import ceildiv
from tilec.language.values.kernel.places import loc
from tilec.language.values.outside_parallel import emit_outside_parallel


def ClusterKernel(*blocks: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None) -> Kernel:
    """`Kernel` in clusters of ``cluster_dims`` blocks (an int or up to three), which divide the grid."""
    return Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def get_cluster_dims() -> tuple[int, int, int]:
    """Blocks of a cluster along x, y, z; 1 without clusters."""
    return current_launch("T.get_cluster_dims").cluster


def get_cluster_size() -> int:
    """Blocks of a cluster."""
    x, y, z = get_cluster_dims()
    return x * y * z


def get_cluster_id(dim: int = 0) -> Any:
    """The index of the block's cluster along one axis of the grid."""
    return get_block_binding(dim) // get_cluster_dims()[dim]


def get_cluster_ids() -> list[Any]:
    """The indices of the block's cluster, as many as the grid has axes."""
    return [get_cluster_id(dim) for dim in range(len(current_launch("T.get_cluster_ids").vars))]


def get_cluster_extent(dim: int = 0) -> Any:
    """Clusters of the grid along one axis."""
    return ceildiv(get_block_extent(dim), get_cluster_dims()[dim])


def get_cluster_extents() -> list[Any]:
    """Clusters of the grid along its axes."""
    return [get_cluster_extent(dim) for dim in range(len(current_launch("T.get_cluster_extents").vars))]


def block_rank_in_cluster() -> Any:
    """The number of the block in its cluster, x fastest; 0 without clusters."""
    rank: Any = 0
    step = 1
    for dim, size in enumerate(get_cluster_dims()):
        if size > 1:
            rank = rank + get_block_binding(dim) % size * step
        step *= size
    return rank


def cluster_arrive_relaxed() -> None:
    """Comes to the cluster's barrier without saying what was written before."""
    _emit("T.cluster_arrive_relaxed", "arrive_relaxed")


def cluster_arrive() -> None:
    """Comes to the cluster's barrier and goes on."""
    _emit("T.cluster_arrive", "arrive")


def cluster_wait() -> None:
    """Waits until all threads of the cluster have come to its barrier."""
    _emit("T.cluster_wait", "wait")


def cluster_sync() -> None:
    """Waits for all threads of the cluster."""
    _emit("T.cluster_sync", "arrive")
    _emit("T.cluster_sync", "wait")


def _emit(construct: str, kind: str) -> None:
    emit_outside_parallel(construct, ir.ClusterBarrier(kind, loc=loc()))
