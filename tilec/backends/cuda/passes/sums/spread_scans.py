"""Scans of whole lines by all threads of a block."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import team_warps, warps_of
from tilec.backends.cuda.analysis.layouts.fragments import WARP, coalesced
from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.backends.cuda.nodes import BlockScan
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Block, Copy, Fill, Kernel, Launch, Scan, Stmt, children, with_children
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.accumulations import identity
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
    BlockScan there and a copy from it, behind the elements padded to equal shares of the lanes; any other one
    walks its axis in a loop (`ExpandScans`), and its road says why."""

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
        return _spread(stmt, warps)
    loss = Loss("vectors", why, "scan the last axis, of constant extents, in float32 or int32")
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
    *lines, length = _extents(stmt)
    padded = static_extents(_padded(stmt, warps))[-1]
    turns = -(-math.prod(lines) // warps) * (padded // WARP)
    if padded > length and turns > length:
        return f"{length} elements are no equal share of {WARP} lanes, and few for {math.prod(lines)} lines"
    return None


def _extents(stmt: Scan) -> list[int]:
    return [int_value(extent) or 0 for extent in stmt.src.extent]


def _padded(stmt: Scan, warps: int) -> Var:
    """A fragment for the lines of a scan, padded to the least length that lanes and warps share equally."""
    *lines, length = _extents(stmt)
    dtype, name = compute_type(str(stmt.dst.buffer.dtype)), f"{stmt.dst.buffer.name}_line"
    lengths = itertools.count(-(-length // WARP) * WARP, WARP)
    tiles = (tirx.decl_buffer((*lines, each), dtype, name=name, scope="local.fragment") for each in lengths)
    return next(tile for tile in tiles if scan_layout(tile, warps).shape[-1] == static_extents(tile)[-1])


def _spread(stmt: Scan, warps: int) -> Block:
    tile = _padded(stmt, warps)
    whole = whole_tile(tile)
    line = replace(whole, extent=stmt.src.extent)
    filled = (Fill(whole, identity(stmt.kind, str(tile.dtype)), loc=stmt.loc),)
    return (
        Alloc(tile),
        *(filled if line.extent != whole.extent else ()),
        Copy(stmt.src, line, loc=stmt.loc),
        BlockScan(stmt.kind, whole, stmt.reverse, loc=stmt.loc),
        Copy(line, stmt.dst, loc=stmt.loc),
    )
