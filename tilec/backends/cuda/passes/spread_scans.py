"""Scans of whole lines by all threads of a block."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fragments import WARP, coalesced
from tilec.backends.cuda.analysis.threads import team_warps, warps_of
from tilec.backends.cuda.analysis.tiles import static_extents, whole_tile
from tilec.backends.cuda.analysis.vectors import WIDEST
from tilec.backends.cuda.nodes import BlockScan
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Scan, Stmt, children, with_children
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.emission.storage import compute_type, element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.expand_scans import ExpandScans

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.layout import Layout
    from tilec.targets import Target

#: Types whose values shuffles move.
_SHUFFLED = ("float32", "int32", "uint32", "float64", "int64", "uint64")


class SpreadScans(Pass):
    """In: Scan. Out: none of them. A scan of constant extents along the last axis is a copy to a fragment, a
    BlockScan there and a copy from it; any other one walks its axis in a loop (`ExpandScans`), and its
    road says why."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Scan."""
        return ExpandScans().apply(rewrite_launches(kernel, _rewritten), target)


def _rewritten(launch: Launch) -> Launch:
    roads: list[Road] = []
    body = _block(launch.body, warps_of(launch), roads)
    return with_roads(replace(launch, body=body), roads)


def _block(block: Block, warps: int, roads: list[Road]) -> Block:
    return tuple(new for stmt in block for new in _stmt(stmt, warps, roads))


def _stmt(stmt: Stmt, warps: int, roads: list[Road]) -> Block:
    if not isinstance(stmt, Scan):
        own = team_warps(stmt, warps)
        return (with_children(stmt, [_block(inner, own, roads) for inner in children(stmt)]),)
    why = _serial(stmt, warps)
    if why is None:
        roads.append(road_of(stmt, "shuffles", "scan in registers, by shuffles, across warps"))
        return _spread(stmt)
    loss = Loss(
        "vectors", why, f"scan the last axis, {WARP} elements for each lane's share, in float32 or int32"
    )
    roads.append(road_of(stmt, "serial", "scan of its axis in one thread per line", loss))
    return (stmt,)


def scan_layout(tile: Var, warps: int) -> Layout:
    """Runs of up to 16 bytes in a thread, then lanes, then warps."""
    *_, length = shape = static_extents(tile)
    most = WIDEST // element_bytes(str(tile.dtype))
    return coalesced(shape, warps, math.gcd(length // WARP, most))


def _serial(stmt: Scan, warps: int) -> str | None:
    """Why a scan cannot be spread over threads; None if it can."""
    extents = [int_value(extent) for extent in stmt.src.extent]
    if None in extents:
        return "its extents are run-time values"
    if stmt.axis != len(extents) - 1:
        return "it is not along the last axis"
    if compute_type(str(stmt.dst.buffer.dtype)) not in _SHUFFLED:
        return f"{stmt.dst.buffer.dtype} has no shuffles"
    if (extents[-1] or 0) % WARP:
        return f"{extents[-1]} elements are no multiple of a warp's {WARP} lanes"
    if scan_layout(_tile(stmt), warps).shape[-1] != extents[-1]:
        return f"{extents[-1]} elements do not divide into equal parts for {warps} warps"
    return None


def _tile(stmt: Scan) -> Var:
    """A fragment for the lines of a scan."""
    shape = [int_value(extent) for extent in stmt.src.extent]
    dtype = compute_type(str(stmt.dst.buffer.dtype))
    return tirx.decl_buffer(shape, dtype, name=f"{stmt.dst.buffer.name}_line", scope="local.fragment")


def _spread(stmt: Scan) -> Block:
    tile = _tile(stmt)
    whole = whole_tile(tile)
    return (
        Alloc(tile),
        Copy(stmt.src, whole, loc=stmt.loc),
        BlockScan(stmt.kind, whole, stmt.reverse, loc=stmt.loc),
        Copy(whole, stmt.dst, loc=stmt.loc),
    )
