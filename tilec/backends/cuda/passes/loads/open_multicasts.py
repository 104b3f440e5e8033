"""Copies that the blocks of a cluster make for each other are copies that say so."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.exprs import int_value, same_all
from tilec.ir.nodes import Block, Copy, If, Launch, Region, Stmt
from tilec.ir.nodes.barriers import ClusterCopy
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks


class OpenMulticasts(LaunchPass):
    """In: ClusterCopies to the block that runs them, also in branches that differ in their masks alone. Out:
    copies that keep the mask among their hints, one for all branches: which blocks bring the same follows
    from what they read."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with copies."""
        return replace(launch, body=rewrite_blocks(launch.body, _opened))


def _opened(block: Block) -> list[Stmt]:
    return [new for stmt in block for new in _stmt(stmt)]


def _stmt(stmt: Stmt) -> Block:
    if isinstance(stmt, ClusterCopy) and stmt.block is None:
        return (Copy(stmt.src, stmt.dst, stmt.hints, loc=stmt.loc),)
    if not isinstance(stmt, If) or len(stmt.then) != len(stmt.orelse):
        return (stmt,)
    pairs = list(zip(stmt.then, stmt.orelse, strict=True))
    return tuple(_joined(*pair) for pair in pairs) if all(_agree(*pair) for pair in pairs) else (stmt,)


def _agree(one: Stmt, other: Stmt) -> bool:
    """Whether two copies of the cluster bring the same to the same tile."""
    if not isinstance(one, Copy) or not isinstance(other, Copy) or None in (_mask(one), _mask(other)):
        return False
    bare = (replace(copy.hints, cluster_mask=None) for copy in (one, other))
    return len(set(bare)) == 1 and _same(one.src, other.src) and _same(one.dst, other.dst)


def _same(one: Region, other: Region) -> bool:
    sizes = [[int_value(extent) for extent in region.extent] for region in (one, other)]
    known = None not in sizes[0] and sizes[0] == sizes[1]
    return known and one.buffer.same_as(other.buffer) and same_all(one.start, other.start)


def _joined(one: Stmt, other: Stmt) -> Copy:
    assert isinstance(one, Copy)
    assert isinstance(other, Copy)
    masks = [mask for mask in (_mask(one), _mask(other)) if mask is not None]
    return replace(one, hints=replace(one.hints, cluster_mask=masks[0] | masks[1]))


def _mask(copy: Copy) -> int | None:
    return copy.hints.cluster_mask
