"""Iterations that read and write one element run one after the other, as on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.interference import are_apart
from tilec.backends.cuda.analysis.accesses.owners import bound_names
from tilec.backends.cuda.analysis.layouts.loops import (
    is_line,
    long_variables,
    loop_extents,
    one_to_one,
    written_out,
)
from tilec.ir.exprs import same
from tilec.ir.nodes import (
    Alloc,
    Block,
    For,
    Launch,
    Parallel,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.roads import Loss, Road
from tilec.ir.serial import serial_nest
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Memory of one thread, where iterations on different threads would not meet.


class SerialiseCollisions(LaunchPass):
    """In: Parallel loops of constant extents. Out: the same, where loops of which an iteration may read what
    another one writes have become serial in the variables that can make them meet. Atomic updates and
    accumulations that `ReduceAccumulations` took apart are no such case, nor are loops whose places are all
    known while compiling, and none of them shared."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without iterations that race."""
        roads: list[Road] = []
        body = _block(launch.body, (), bound_names(launch.body), roads)
        return with_roads(replace(launch, body=body), roads)


def _block(block: Block, around: Sequence[For], names: Mapping[Var, Expr], roads: list[Road]) -> Block:
    return tuple(_stmt(stmt, around, names, roads) for stmt in block)


def _stmt(stmt: Stmt, around: Sequence[For], names: Mapping[Var, Expr], roads: list[Road]) -> Stmt:
    if not isinstance(stmt, Parallel):
        inside = (*around, stmt) if isinstance(stmt, For) else around
        return with_children(stmt, [_block(inner, inside, names, roads) for inner in children(stmt)])
    shared = [buffer for buffer in colliding(stmt) if not are_apart(stmt, buffer, around, names)]
    if not shared:
        return stmt
    items = [item for item in accesses(stmt.body) if item.buffer in shared]
    meeting = [var for var in long_variables(stmt) if not _keeps_apart(var, items, stmt)]
    which = " and ".join(str(var.name) for var in meeting)
    what = " and ".join(str(buffer.name) for buffer in shared)
    why = f"its iterations share elements of {what}"
    loss = Loss("vectors", why, "write each element in one iteration, or add by T.reduce_sum or T.atomic_add")
    roads.append(road_of(stmt, "serial", f"the loop over {which} is serial", loss))
    return _serial(stmt, meeting)


def colliding(loop: Parallel) -> list[Var]:
    """The buffers that a loop writes at elements which several iterations may have in common: those that it
    reads, and fragments, where the last iteration has to win."""
    inside = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    read = {item.buffer for item in accesses(loop.body) if not item.is_write}
    stores = [
        stmt
        for stmt in walk(loop.body)
        if isinstance(stmt, Store) and (stmt.buffer in read or stmt.buffer.scope() == "local.fragment")
    ]
    found = {
        store.buffer: None
        for store in stores
        if store.buffer not in inside
        and store.buffer.scope() not in PER_THREAD
        and not one_to_one(written_out(store.indices, loop), long_variables(loop), loop)
    }
    return list(found)


def _keeps_apart(var: Var, items: Sequence[Access], loop: Parallel) -> bool:
    """Whether different values of ``var`` never name one element: per buffer some index is the same in all
    accesses, and moves with ``var`` alone."""
    buffers = dict.fromkeys(item.buffer for item in items)
    return all(
        _splits(var, [written_out(item.indices, loop) for item in items if item.buffer.same_as(buffer)], loop)
        for buffer in buffers
    )


def _splits(var: Var, places: Sequence[tuple], loop: Parallel) -> bool:  # type: ignore[type-arg]
    first = places[0]
    return any(
        is_line(index, var, long_variables(loop)) and all(same(place[axis], index) for place in places)
        for axis, index in enumerate(first)
    )


def _serial(loop: Parallel, meeting: Sequence[Var]) -> Parallel:
    """The loop with ``meeting`` as serial loops inside, in their order."""
    extents = dict(zip(loop.vars, loop_extents(loop), strict=True))
    body = serial_nest(meeting, [extents[var] for var in meeting], loop.body, loop.loc)
    kept = tuple(var for var in loop.vars if not any(var.same_as(other) for other in meeting))
    if not kept:
        kept, extents = (alone := tirx.Var("alone", "int32"),), {alone: 1}
    return replace(loop, vars=kept, extents=tuple(extents[var] for var in kept), body=body)
