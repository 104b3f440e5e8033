"""Tile statements that write what each thread has for itself, or that stand in a loop over elements."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tilec.backends.cuda.passes.loops.split_loops import serial_inside
from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    Fill,
    Launch,
    Parallel,
    Reduce,
    Region,
    Stmt,
    children,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.regions import may_overlap
from tilec.lowering.passes.base import LaunchPass
from tilec.lowering.passes.expand_copies import expand_copy, expand_fill
from tilec.lowering.passes.expand_reduces import expand_reduce


class PrivateCopies(LaunchPass):
    """In: any tile statements. Out: Copy, Fill and Reduce write shared, global and fragment tiles alone, and
    none is left inside a Parallel: what goes to a thread's own memory is a serial loop, which every thread
    runs for all elements."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without tile statements of one thread."""
        return replace(launch, body=_block(launch.body, False))


def _block(block: Block, inside: bool) -> Block:
    return tuple(new for stmt in block for new in _stmt(stmt, inside))


def _stmt(stmt: Stmt, inside: bool) -> Block:
    if isinstance(stmt, (Copy, Fill)) and (inside or _is_private(stmt.dst)):
        return serial_inside(_moved(stmt))
    if isinstance(stmt, Reduce) and (inside or _is_private(stmt.dst)):
        return _reduced(stmt, inside)
    inner = children(stmt)
    within = inside or isinstance(stmt, Parallel)
    return (with_children(stmt, [_block(block, within) for block in inner]),) if inner else (stmt,)


def _is_private(region: Region) -> bool:
    return region.buffer.scope() in PER_THREAD


def _moved(stmt: Copy | Fill) -> Block:
    """The loop of a copy or a fill; a copy between parts of one tile that overlap takes another one."""
    if isinstance(stmt, Fill):
        return (expand_fill(stmt),)
    if not may_overlap(stmt.src, stmt.dst):
        return (expand_copy(stmt),)
    between = _like(stmt.dst, str(stmt.src.buffer.dtype), "local")
    there, back = replace(stmt, dst=between), replace(stmt, src=between)
    return Alloc(between.buffer, loc=stmt.loc), expand_copy(there), expand_copy(back)


def _reduced(stmt: Reduce, inside: bool) -> Block:
    """Each thread's own sum of its own elements, or its copy of what the block found together."""
    if inside or _is_private(stmt.src):
        return serial_inside(tuple(expand_reduce(stmt)))
    found = _like(stmt.dst, str(stmt.dst.buffer.dtype), "local.fragment")
    before: Block = () if stmt.clear else (Copy(stmt.dst, found, loc=stmt.loc),)
    after = serial_inside((expand_copy(Copy(found, stmt.dst, loc=stmt.loc)),))
    return Alloc(found.buffer, loc=stmt.loc), *before, replace(stmt, dst=found), *after


def _like(region: Region, dtype: str, scope: str) -> Region:
    """The same extents of a new tile; a run-time extent counts as the whole dimension."""
    pairs = zip(region.extent, region.buffer.shape, strict=True)
    shape = tuple(int_value(size if int_value(extent) is None else extent) or 1 for extent, size in pairs)
    tile = tirx.decl_buffer(shape, dtype, name=f"{region.buffer.name}_own", scope=scope)
    return Region(tile, tuple(tirx.const(0, "int32") for _ in shape), region.extent)
