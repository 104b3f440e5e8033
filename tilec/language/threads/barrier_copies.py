"""Copies that arrive at a barrier, or at one of another block of the cluster."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.ir.nodes import barriers as ir
from tilec.ir.nodes.threads import WARP
from tilec.language.threads.barriers import one_barrier
from tilec.language.tiles.memory.boxes import Box, box, meet
from tilec.language.tiles.memory.views import View
from tilec.language.tiles.operations.copies import copy
from tilec.language.values.kernel.annotations import unheeded
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.layouts.asked_hints import hints_of
from tilec.language.values.operands import stored_value
from tilec.language.values.outside_parallel import emit_outside_parallel


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: int | None = None,
    leader_scope_threads: int | None = None,
    eviction_policy: str | None = None,
    annotations: Any = None,
) -> None:
    """A copy between global and shared memory.

    A load (global to shared) is complete for those who wait for the phase of ``barrier`` that is under way; a
    store (shared to global) when it ends. Extents as in `copy`. Raises `SourceValueError` for a load without
    a barrier, other memories, and hints that are out of range."""
    construct = "T.tma_copy"
    _check_hints(construct, cluster_mask, leader_scope_threads)
    if leader_scope_threads is not None:
        unheeded(construct, "tilec chooses the thread that issues a copy", "leave leader_scope_threads out")
    source, target = box(src, construct), box(dst, construct)
    scopes = (source.buffer.scope(), target.buffer.scope())
    if scopes[0] == "shared.dyn" and scopes[1].startswith("global"):
        return copy(
            src, dst, eviction_policy=eviction_policy, prefer_instruction="tma", annotations=annotations
        )
    _check_load(construct, scopes, barrier)
    source, target = meet(source, target, construct)
    is_view = isinstance(source.buffer, View) or isinstance(target.buffer, View)
    if is_view or source.buffer.safe_value is not None:
        raise unsupported("T.tma_copy of a reinterpreted buffer", remedy="use T.copy")
    at = one_barrier(construct, barrier)
    hints = hints_of(construct, {"eviction_policy": eviction_policy}, annotations)
    stmt = ir.BulkLoad(source.region(), target.region(), at.of.var, at.index, hints=hints, loc=loc())
    return emit_outside_parallel(construct, stmt)


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: str | None = None,
    coalesced_width: int | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """A copy within a cluster (sm_90a); the keywords without a meaning here are hints.

    Without ``dst_block`` as `copy`; one copy may serve all blocks of ``cluster_mask`` that copy the same.
    With it, a copy into the shared tile ``dst`` of the block of that rank, complete behind one arrival at
    ``remote_barrier`` of that block, or behind a barrier of the cluster. Raises `SourceValueError` for other
    memories, and for a barrier without a block."""
    construct = "T.copy_cluster"
    given = {
        "eviction_policy": eviction_policy,
        "coalesced_width": coalesced_width,
        "loop_layout": loop_layout,
        "cluster_mask": cluster_mask,
    }
    hints = hints_of(construct, given, annotations)
    source, target = meet(box(src, construct), box(dst, construct), construct)
    if isinstance(source.buffer, View) or isinstance(target.buffer, View):
        raise unsupported(f"{construct} of a reinterpreted buffer", remedy="copy the buffer itself")
    if dst_block is None and remote_barrier is not None:
        raise source_error(
            SourceValueError,
            f"{construct} with a remote_barrier and no dst_block",
            construct=construct,
            remedy="give dst_block, the rank in its cluster of the block that gets the tile",
        )
    if dst_block is None:
        return emit_outside_parallel(
            construct, ir.ClusterCopy(source.region(), target.region(), hints=hints, loc=loc())
        )
    _check_remote(construct, source, target)
    block = stored_value(dst_block, "int32", construct)
    at = None if remote_barrier is None else one_barrier(construct, remote_barrier)
    signal, number = (None, None) if at is None else (at.of.var, at.index)
    stmt = ir.ClusterCopy(source.region(), target.region(), block, signal, number, hints, loc=loc())
    return emit_outside_parallel(construct, stmt)


def _check_load(construct: str, scopes: tuple[str, str], barrier: Any) -> None:
    """Raises `SourceValueError` unless a copy from a tensor to a shared tile has a barrier."""
    if not (scopes[0].startswith("global") and scopes[1] == "shared.dyn"):
        raise source_error(
            SourceValueError,
            f"{construct} from {scopes[0]} to {scopes[1]} memory",
            construct=construct,
            why="it copies between global and shared memory",
            remedy="use T.copy",
        )
    if barrier is None:
        raise source_error(
            SourceValueError,
            f"{construct} into shared memory needs a barrier",
            construct=construct,
            remedy="give barrier=mb[i] and wait for it, or use T.copy",
        )


def _check_remote(construct: str, source: Box, target: Box) -> None:
    """Raises `SourceValueError` unless another block gets the elements of a box as they are."""
    if target.buffer.scope() != "shared.dyn" or source.buffer.dtype != target.buffer.dtype:
        raise source_error(
            SourceValueError,
            f"{construct} into {target.buffer.dtype} in {target.buffer.scope()} memory of another block",
            construct=construct,
            why="blocks of a cluster reach each other's shared tiles, and nothing is converted on the way",
            remedy="copy into a shared tile of the same dtype",
        )


def _check_hints(construct: str, mask: Any, leaders: Any) -> None:
    if mask is not None and (not isinstance(mask, int) or mask < 1):
        raise source_error(
            SourceValueError,
            f"cluster_mask {mask!r} is no positive integer",
            construct=construct,
            remedy="give a positive integer, a bit per block",
        )
    if mask is not None and mask & (mask - 1):
        raise unsupported(
            f"{construct}(cluster_mask={mask})", remedy="let each block of the cluster load its own tile"
        )
    if leaders is not None and (not isinstance(leaders, int) or leaders < 1 or leaders % WARP):
        raise source_error(
            SourceValueError,
            f"leader_scope_threads {leaders!r} is no positive multiple of {WARP}",
            construct=construct,
            remedy="leave it out, or give a multiple of 32",
        )
