"""Loops over parts of fragments are written out: which registers a part has is known then.

for p in range(4): out[:, :] = sums[:, 64 * p : 64 * p + 64]; ...
->  out[:, :] = sums[:, 0:64]; ...; out[:, :] = sums[:, 64:128]; ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.held_alike import held_alike
from tilec.ir.analysis.known_trips import whole_trips
from tilec.ir.exprs import as_expr, inlined, int_value, uses
from tilec.ir.nodes import PRODUCTS, Block, For, Launch, Parallel, Stmt, walk
from tilec.ir.traits import regions
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.at_values import at_trip
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Expr, Var

#: Trips that are written out: parts of which there are more are staged in shared memory.
_MOST = 8


class WriteOutParts(LaunchPass):
    """In: any statements. Out: no loop of a few trips has another part in each of what a product leaves, or
    of a fragment that is held as that is: its trips stand one behind the other. Parts of other fragments may
    be other threads' and pass through shared memory, in front of the loop."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with the trips of such loops."""
        made = (stmt.c.buffer for stmt in walk(launch.body) if isinstance(stmt, PRODUCTS))
        sums = {buffer for buffer in made if buffer.scope() == "local.fragment"}
        if not sums:
            return launch
        held = held_alike(filter(_is_of_numbers, walk(launch.body)), sums)
        body = rewrite_blocks(launch.body, lambda block: _block(block, held))
        return replace(launch, body=body)


def _is_of_numbers(stmt: Stmt) -> bool:
    """Whether a statement is no loop over elements, or one whose extents are numbers."""
    return not isinstance(stmt, Parallel) or all(int_value(extent) is not None for extent in stmt.extents)


def _block(block: Block, held: Set[Var]) -> list[Stmt]:
    return [trip for stmt in block for trip in _written_out(stmt, held)]


def _written_out(stmt: Stmt, held: Set[Var]) -> Block:
    if not isinstance(stmt, For) or not _moves_parts(stmt, held):
        return (stmt,)
    trips = whole_trips(stmt)
    if trips is None or len(trips) > _MOST:
        return (stmt,)
    return tuple(new for trip in trips for new in at_trip(stmt, trip))


def _moves_parts(loop: For, held: Set[Var]) -> bool:
    """Whether several elements of a ``held`` fragment that a statement names lie elsewhere in each trip."""
    values = values_of(walk(loop.body))
    return any(uses(inlined(start, values), (loop.var,)) for start in _starts(loop.body, held))


def _starts(block: Block, held: Set[Var]) -> Iterator[Expr]:
    """Where several elements of ``held`` fragments begin."""
    for stmt in walk(block):
        for region in regions(stmt):
            if region.buffer in held:
                sides = zip(region.start, region.extent, strict=True)
                yield from (as_expr(start, "int32") for start, extent in sides if int_value(extent) != 1)
        if isinstance(stmt, Parallel):
            for item in accesses(stmt.body):
                if item.buffer in held:
                    yield from (index for index in item.indices if uses(index, stmt.vars))
