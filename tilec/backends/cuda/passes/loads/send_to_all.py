"""Copies to one block of a cluster after the other go to all of them at once."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tilec.backends.cuda.nodes import RemoteStore, Sync
from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import int_value, uses
from tilec.ir.nodes import Block, Copy, For, Launch, Parallel, Stmt, Store
from tilec.ir.nodes.barriers import ClusterBarrier, ClusterCopy
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy


class SendToAll(LaunchPass):
    """In: serial loops of nothing but a ClusterCopy of the same elements to the block of the trip, which no
    barrier counts. Out: one Parallel over blocks and elements, whose stores threads share, and a Sync where
    threads do not meet next: trip by trip all of them would meet twice for each block."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its stores to all blocks."""
        roads: list[Road] = []

        def rewrite(block: Block) -> list[Stmt]:
            behind = (*block, None)[1:]
            return [new for pair in zip(block, behind, strict=True) for new in _stmt(*pair, roads)]

        return with_roads(replace(launch, body=rewrite_blocks(launch.body, rewrite)), roads)


def _stmt(stmt: Stmt, behind: Stmt | None, roads: list[Road]) -> list[Stmt]:
    sent = _sent(stmt) if isinstance(stmt, For) else None
    if sent is None:
        return [stmt]
    assert isinstance(stmt, For)
    roads.append(road_of(sent, "threads", "T.copy_cluster stores to all blocks at once"))
    met = isinstance(behind, ClusterBarrier) or (isinstance(behind, For) and _sent(behind) is not None)
    return [_at_once(stmt, sent), *([] if met else [Sync()])]


def _sent(loop: For) -> ClusterCopy | None:
    """What the trips of a loop send; None where they do anything else."""
    copy = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(copy, ClusterCopy) or copy.barrier is not None or copy.block is None:
        return None
    whole = counts_from_zero(loop) and int_value(loop.stop) is not None
    places = (*copy.src.start, *copy.dst.start, *copy.src.extent, *copy.dst.extent)
    moves = any(not isinstance(place, int) and uses(place, (loop.var,)) for place in places)
    return copy if whole and copy.block.same_as(loop.var) and not moves else None


def _at_once(loop: For, copy: ClusterCopy) -> Parallel:
    made = expand_copy(Copy(copy.src, copy.dst, copy.hints, loc=copy.loc))
    inner = made if isinstance(made, Parallel) else Parallel((), (), (made,), loc=copy.loc)
    (store,) = inner.body
    assert isinstance(store, Store)
    count = tirx.const(int_value(loop.stop), "int32")
    remote = RemoteStore("store", store.buffer, store.indices, store.value, loc=copy.loc, block=loop.var)
    return replace(inner, vars=(loop.var, *inner.vars), extents=(count, *inner.extents), body=(remote,))
