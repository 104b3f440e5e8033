"""Barriers that an author declares get memory and a beginning; loads that arrive at them become loads of
threads.

    full = alloc_barriers((128,))    ->    full = alloc(uint64, (1,), "shared.barrier")
                                           init_barriers(full, counts=(128,)); sync_threads()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import has_groups
from tilec.backends.cuda.analysis.pipelines.asked_hints import said
from tilec.backends.cuda.nodes import ArriveOnce, CompleteBytes, InitBarriers, RemoteStore, Sync
from tilec.backends.cuda.passes.loops.split_loops import serial_loops
from tilec.errors import UnsupportedError
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Pipelined, Stmt, Store, walk
from tilec.ir.nodes.barriers import AllocBarrier, Arrive, BulkLoad, ClusterBarrier, ClusterCopy, ExpectBytes
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.ir.serial import serial
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class OpenBarriers(Pass):
    """In: AllocBarrier anywhere, and BulkLoads that TMA does not carry out. Out: at the start of the launch
    the memory of all barriers, their initial counts and a Sync. A BulkLoad is a Copy, and behind it
    CompleteBytes where the author announces bytes: its threads arrive, or wait, after they have written.
    Loops of launches with groups or barriers are not pipelined: their author has done it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its barriers open."""
        return rewrite_launches(kernel, _opened)


def _opened(launch: Launch) -> Launch:
    found = [stmt for stmt in walk(launch.body) if isinstance(stmt, AllocBarrier)]
    copies = any(isinstance(stmt, ClusterCopy) for stmt in walk(launch.body))
    if not found and not has_groups(launch) and not in_clusters(launch) and not copies:
        return launch
    announced = set(announced_in(launch.body))
    _check_remote(launch.body, announced, {stmt.buffer for stmt in found if stmt.cluster})
    roads: list[Road] = []

    def rewrite(block: Block) -> list[Stmt]:
        return [new for stmt in block for new in _stmt(stmt, announced, roads)]

    body = rewrite_blocks(launch.body, rewrite)
    head: list[Stmt] = [Alloc(stmt.buffer, loc=stmt.loc) for stmt in found]
    head += [InitBarriers(stmt.buffer, stmt.counts, stmt.cluster, loc=stmt.loc) for stmt in found]
    if any(stmt.cluster for stmt in found):
        head += [ClusterBarrier("arrive"), ClusterBarrier("wait")]
    elif _sends(launch):
        head += [ClusterBarrier("arrive")]
        body = _waiting(body)
    else:
        head += [Sync()] if found else []
    return with_roads(replace(launch, body=(*head, *body)), roads)


def _waiting(body: Block) -> Block:
    """A body that waits for all blocks of the cluster to have begun in front of the first statement with
    stores to one of them."""
    first = next(index for index, stmt in enumerate(body) if _meets_blocks(stmt))
    return (*body[:first], ClusterBarrier("wait"), *body[first:])


def _meets_blocks(stmt: Stmt) -> bool:
    """Whether a block does something to others."""
    return any(isinstance(inner, (RemoteStore, ClusterBarrier)) for inner in walk((stmt,)))


def in_clusters(launch: Launch) -> bool:
    """Whether the blocks of a launch wait for others of their cluster."""
    return any(
        isinstance(stmt, ClusterBarrier)
        or (isinstance(stmt, (Arrive, ClusterCopy)) and stmt.block is not None)
        or isinstance(stmt, RemoteStore)
        or (isinstance(stmt, (AllocBarrier, InitBarriers)) and stmt.cluster)
        for stmt in walk(launch.body)
    )


def cluster_shape(launch: Launch) -> tuple[int, int, int]:
    """The blocks of a cluster along x, y, z, where that matters to the code of a launch."""
    asked = launch.schedule.cluster_dims if in_clusters(launch) else 1
    given = (asked or 1,) if asked is None or isinstance(asked, int) else asked
    x, y, z = (*given, 1, 1)[:3]
    return (x, y, z)


def announced_in(body: Block) -> Iterator[Var]:
    """The barriers whose bytes the author announces."""
    for stmt in walk(body):
        if isinstance(stmt, ExpectBytes) or (isinstance(stmt, Arrive) and stmt.expect is not None):
            yield stmt.barrier


def _check_remote(body: Block, announced: set[Var], of_clusters: set[Var]) -> None:
    """A copy to another block is one arrival there, seen by all who wait at a barrier of clusters."""
    for stmt in walk(body):
        if not isinstance(stmt, ClusterCopy) or stmt.barrier is None:
            continue
        if stmt.barrier in announced:
            raise UnsupportedError(
                "T.copy_cluster to a remote_barrier that counts bytes",
                place=place_of(stmt, "T.copy_cluster"),
                why="the copy arrives there once, and announces no bytes",
                remedy="allocate the barrier for one arrival of the copy, without expect_tx",
            )
        if stmt.barrier not in of_clusters:
            raise UnsupportedError(
                "T.copy_cluster to a remote_barrier of one block",
                place=place_of(stmt, "T.copy_cluster"),
                why="who waits there does not see what other blocks wrote",
                remedy="allocate it with T.alloc_cluster_barrier",
            )


def _stmt(stmt: Stmt, announced: set[Var], roads: list[Road]) -> list[Stmt]:
    if isinstance(stmt, AllocBarrier):
        return []
    if isinstance(stmt, Pipelined):
        return [serial(stmt, stmt.body)]
    if isinstance(stmt, ClusterCopy):
        return _cluster_copy(stmt, roads)
    if not isinstance(stmt, BulkLoad):
        return [stmt]
    whole = Copy(stmt.src, stmt.dst, stmt.hints, loc=stmt.loc)
    if stmt.alone:
        roads += said(stmt, stmt.hints, "threads", 1)
    copy = serial_loops(expand_copy(whole)) if stmt.alone else whole
    if stmt.barrier not in announced:
        return [copy]
    done = CompleteBytes(stmt.barrier, stmt.index, _bytes(stmt), stmt.alone, loc=stmt.loc)
    return [copy, done] if stmt.alone else [copy, Sync(), done]


def by_threads(stmt: BulkLoad, why: str, remedy: str) -> Road:
    """The road of a load that TMA does not carry out."""
    return road_of(stmt, "threads", "loads of threads", Loss("tma", why, remedy))


def _sends(launch: Launch) -> bool:
    """Whether blocks write to tiles of others, which must have begun."""
    return any(
        isinstance(stmt, RemoteStore) or (isinstance(stmt, ClusterCopy) and stmt.block is not None)
        for stmt in walk(launch.body)
    )


def _cluster_copy(stmt: ClusterCopy, roads: list[Road]) -> list[Stmt]:
    """A plain copy, or stores by all threads to another block and the arrival of one of them, which
    announces the bytes that the barrier counts. Where it is not known how many these are, that thread arrives
    behind all stores."""
    whole = Copy(stmt.src, stmt.dst, stmt.hints, loc=stmt.loc)
    if stmt.block is None:
        roads.append(road_of(stmt, "threads", "T.copy_cluster: each block brings the tile itself"))
        return [whole]
    roads.append(road_of(stmt, "threads", "T.copy_cluster stores to the other block"))
    roads += said(stmt, stmt.hints, "elements", 1)
    count = _sent(stmt)

    def remote(inner: Block) -> list[Stmt]:
        return [_remote(store, stmt, count is not None) for store in inner]

    stores = rewrite_blocks((expand_copy(whole),), remote)
    if stmt.barrier is None or stmt.index is None:
        return [*stores, Sync()]
    arrive = ArriveOnce(stmt.barrier, stmt.index, count, stmt.block, loc=stmt.loc)
    return [*stores, *([Sync()] if count is None else []), arrive]


def _sent(stmt: ClusterCopy) -> Expr | None:
    """The bytes that a barrier counts: those of a part of a tile with build-time bounds."""
    ends = [
        _is_inside(*axis) for axis in zip(stmt.dst.start, stmt.dst.extent, stmt.dst.buffer.shape, strict=True)
    ]
    return tirx.const(_bytes(stmt), "int32") if stmt.barrier is not None and all(ends) else None


def _is_inside(start: Expr, extent: Expr, size: Expr) -> bool:
    """Whether a part of an axis is known to lie inside of it."""
    first, count, whole = map(int_value, (start, extent, size))
    return first is not None and count is not None and whole is not None and first + count <= whole


def _remote(stmt: Stmt, copy: ClusterCopy, counted: bool) -> Stmt:
    if not isinstance(stmt, Store):
        return stmt
    assert copy.block is not None
    barrier, index = (copy.barrier, copy.index) if counted else (None, None)
    store = RemoteStore("store", stmt.buffer, stmt.indices, stmt.value, loc=stmt.loc, block=copy.block)
    return replace(store, barrier=barrier, index=index)


def _bytes(stmt: BulkLoad | ClusterCopy) -> int:
    total = element_bytes(str(stmt.dst.buffer.dtype))
    for extent in stmt.dst.extent:
        known = int_value(extent)
        if known is None:
            raise UnsupportedError(
                "T.tma_copy of a run-time extent", place=place_of(stmt, "T.tma_copy"), remedy="use T.copy"
            )
        total *= known
    return total
