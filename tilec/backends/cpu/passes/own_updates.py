"""Blocks that update elements of a tensor that others update, too, are shared out so that nobody else does.

with launch(n) as (b,):                      with launch(4) as (part,):
    for j in parallel(256):            ->        for b in serial(0, n):
        atomic_add(E[I[b], j], G[b, j])              for j in parallel(64):
                                                         E[I[b], part * 64 + j] = ... + G[b, part * 64 + j]

An update that others may come between takes as long as twenty others. Results are those of one thread,
whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int_value
from tilec.ir.nodes import Atomic, Block, If, Launch, Parallel, children, is_global
from tilec.ir.serial import serial_nest
from tilec.lowering.analysis.accesses import own_accesses
from tilec.lowering.analysis.owned_elements import Columns, Writes, ends_of
from tilec.lowering.analysis.updates import stored
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Blocks that are enough for the threads of most machines.
_ENOUGH = 16
#: Accesses for each update up to which a launch takes its time for updates; trips of a loop whose count is
#: not known.
_LIGHT, _UNKNOWN = 8, 64


class OwnUpdates(LaunchPass):
    """In: launches of little but atomic updates of tensors. Out: where block indices or columns tell which
    elements, the blocks are those, everything else is a loop inside, and updates are stores."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with blocks that have elements of their own."""
        writes = Writes(launch)
        if not writes.may_be_shared_out():
            return launch
        kept = [var for var in launch.block_vars if writes.tell(var)]
        if kept:
            return _inside_out(launch, kept) if _is_light(launch) or _are_enough(launch, kept) else launch
        columns = writes.columns() if _is_light(launch) else None
        return _by_columns(launch, columns) if columns else launch


def _is_light(launch: Launch) -> bool:
    """Whether blocks do little beside their updates."""
    accesses, updates = _counts(launch.body)
    return accesses <= _LIGHT * updates


def _counts(block: Block) -> tuple[int, int]:
    """How many elements a block reads and writes, and how many it updates."""
    accesses, updates = 0, 0
    for stmt in block:
        trips = prod(int_value(count) or _UNKNOWN for _, count in ends_of((stmt,)))
        parts = [_counts(inner) for inner in children(stmt)]
        accesses += len(own_accesses(stmt)) + trips * sum(own for own, _ in parts)
        updates += isinstance(stmt, Atomic) + trips * sum(own for _, own in parts)
    return accesses, updates


def _are_enough(launch: Launch, kept: Sequence[Var]) -> bool:
    """Whether the blocks that block indices tell apart are many."""
    axes = zip(launch.block_vars, launch.grid, strict=True)
    return prod(int_value(extent) or _ENOUGH for var, extent in axes if var in kept) >= _ENOUGH


def _inside_out(launch: Launch, kept: Sequence[Var]) -> Launch:
    """The launch over the block indices that are ``kept``, the others loops of each block."""
    axes = list(zip(launch.block_vars, launch.grid, strict=True))
    grid = [(var, extent) for var, extent in axes if var in kept]
    body = _around([axis for axis in axes if axis[0] not in kept], _with_stores(launch.body))
    return replace(
        launch, block_vars=tuple(var for var, _ in grid), grid=tuple(e for _, e in grid), body=body
    )


def _by_columns(launch: Launch, columns: Columns) -> Launch:
    """The launch over parts of the columns, all of its blocks loops of each."""
    part = tirx.Var("part", "int32")

    def narrow(block: Block) -> Block:
        return tuple(_narrowed(stmt, part, columns) if isinstance(stmt, Parallel) else stmt for stmt in block)

    body = _around(
        list(zip(launch.block_vars, launch.grid, strict=True)),
        rewrite_blocks(_with_stores(launch.body), narrow),
    )
    return replace(launch, block_vars=(part,), grid=(columns.parts,), body=body)


def _narrowed(loop: Parallel, part: Var, columns: Columns) -> Parallel:
    """A loop over the columns of a part, if it is one over columns."""
    own = next((var for var in loop.vars if var in columns.vars), None)
    if own is None:
        return loop
    column = part * columns.width + own
    body = rename(loop.body, {own: column})
    if columns.count % columns.width:
        body = (If(column < columns.count, body, loc=loop.loc),)
    counts = zip(loop.vars, loop.extents, strict=True)
    extents = tuple(columns.width if var is own else extent for var, extent in counts)
    return replace(loop, extents=extents, body=body)


def _around(axes: Sequence[tuple[Var, int | Expr]], body: Block) -> Block:
    """Loops over block indices, the first of them fastest, around a body."""
    slowest_first = axes[::-1]
    return serial_nest([var for var, _ in slowest_first], [extent for _, extent in slowest_first], body)


def _with_stores(body: Block) -> Block:
    """Updates of tensors as stores."""

    def plain(block: Block) -> Block:
        return tuple(
            stored(stmt) if isinstance(stmt, Atomic) and is_global(stmt.buffer) else stmt for stmt in block
        )

    return rewrite_blocks(body, plain)
