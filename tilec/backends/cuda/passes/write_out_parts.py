"""Loops over parts of fragments are written out: which registers a part has is known then.

for p in range(4): out[:, :] = sums[:, 64 * p : 64 * p + 64]; ...
->  out[:, :] = sums[:, 0:64]; ...; out[:, :] = sums[:, 64:128]; ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.analysis.jumps import jumps
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import as_expr, dtype_of, inlined, int_value, uses
from tilec.ir.nodes import Block, For, Parallel, Stmt, walk
from tilec.ir.traits import regions
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.at_values import at_values
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Trips that are written out: parts of which there are more are staged in shared memory.
_MOST = 8


class WriteOutParts(BlockPass):
    """In: any statements. Out: no loop of a few trips has another part of a fragment in each: its trips stand
    one behind the other."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with the trips of such loops."""
        return [trip for stmt in block for trip in _written_out(stmt)]


def _written_out(stmt: Stmt) -> Block:
    if not isinstance(stmt, For) or not _moves_parts(stmt):
        return (stmt,)
    trips = known_trips(stmt)
    if trips is None or len(trips) > _MOST or any(True for inner in stmt.body for _ in jumps(inner)):
        return (stmt,)
    numbers = (tirx.const(trip, dtype_of(stmt.var)) for trip in trips)
    return tuple(new for number in numbers for new in at_values(stmt.body, {stmt.var: number}))


def _moves_parts(loop: For) -> bool:
    """Whether several elements of a fragment that a statement names lie elsewhere in each trip."""
    values = values_of(walk(loop.body))
    return any(uses(inlined(start, values), (loop.var,)) for start in _starts(loop.body))


def _starts(block: Block) -> Iterator[Expr]:
    """Where several elements of fragments begin."""
    for stmt in walk(block):
        for region in regions(stmt):
            if region.buffer.scope() == "local.fragment":
                sides = zip(region.start, region.extent, strict=True)
                yield from (as_expr(start, "int32") for start, extent in sides if int_value(extent) != 1)
        if isinstance(stmt, Parallel):
            for item in accesses(stmt.body):
                if item.buffer.scope() == "local.fragment":
                    yield from (index for index in item.indices if uses(index, stmt.vars))
