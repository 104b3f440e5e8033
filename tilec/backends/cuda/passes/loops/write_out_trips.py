"""Loops that fill arrays of an iteration of a T.Parallel, or read them, are written out.

for j in parallel(64): a = local[4]; for i in unroll(4): a[i] = X[i, j]; ...
->
for j in parallel(64): a = local[4]; a[0] = X[0, j]; a[1] = X[1, j]; a[2] = X[2, j]; a[3] = X[3, j]; ...

What neighbours read and store is vectors then, in front of all and behind all of them: in the loop each
element is read by itself. Arrays whose elements numbers name are registers, too.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.ir.analysis.known_trips import whole_trips
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.nodes import Alloc, Block, For, Launch, Parallel, Stmt, Store, children, walk, with_children
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.at_values import at_trip
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

#: Stores of an iteration that are written out: what that reads and stores is in registers at once.
_MOST = 64


class WriteOutTrips(LaunchPass):
    """In: Parallel loops. Out: where an iteration has arrays of its own, no loop of few trips names elements
    of them."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with the trips of such loops."""
        return replace(launch, body=rewrite_blocks(launch.body, _block))


def _block(block: Block) -> list[Stmt]:
    return [_written_out(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _written_out(loop: Parallel) -> Stmt:
    allocs = (stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc))
    arrays = {buffer for buffer in allocs if math.prod(static_extents(buffer)) > 1}
    if not arrays or not is_scalar_code(loop.body) or _stores(loop.body, arrays) > _MOST:
        return loop
    return replace(loop, body=tuple(_trips(loop.body, arrays)))


def _stores(block: Block, arrays: Set[Var]) -> float:
    """How many stores ``block`` has once its loops over ``arrays`` are written out; infinite where one cannot
    be."""
    return sum(_stores_of(stmt, arrays) for stmt in block)


def _stores_of(stmt: Stmt, arrays: Set[Var]) -> float:
    inside = isinstance(stmt, Store) + sum(_stores(inner, arrays) for inner in children(stmt))
    if not isinstance(stmt, For) or not _names(stmt, arrays):
        return inside
    trips = whole_trips(stmt)
    return math.inf if trips is None else len(trips) * inside


def _names(loop: For, arrays: Set[Var]) -> bool:
    """Whether the trips of a loop name elements of ``arrays``."""
    return any(item.buffer in arrays for item in accesses(loop.body))


def _trips(block: Block, arrays: Set[Var]) -> list[Stmt]:
    """The statements of ``block`` with the trips of its loops over ``arrays`` one behind the other."""
    made: list[Stmt] = []
    for stmt in block:
        if not isinstance(stmt, For) or not _names(stmt, arrays):
            made.append(with_children(stmt, [tuple(_trips(inner, arrays)) for inner in children(stmt)]))
            continue
        made += (new for trip in whole_trips(stmt) or () for new in _trips(at_trip(stmt, trip), arrays))
    return made
