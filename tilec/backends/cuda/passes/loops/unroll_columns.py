"""Trips that read neighbours of shared rows are one trip, as many as a vector has.

for k in range(16): for i, j in parallel(128, 128): f[i, j] += A[i, k] * B[k, j]
->
for c in range(4):
    for i, j in parallel(128, 128): f[i, j] += A[i, 4 * c] * B[4 * c, j]; f[i, j] += ...; ...

Compilers join what a row of these reads (`ld.shared.v4`), and a thread goes from row to row with it; of a
loop with as much to do in a trip they leave the trips apart, and each element is read by itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.passes.sums.serialise_collisions import colliding
from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.analysis.renaming import in_trip
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, uses
from tilec.ir.nodes import Alloc, Bind, Block, For, Launch, Parallel, Stmt, Store, walk
from tilec.lowering.analysis.accesses import Access, accesses, names_one_element, values_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

#: Trips that follow each other at most, and statements of a thread in them: what instruction caches hold.
_MOST_TRIPS, _MOST_STATEMENTS = 4, 1024


class UnrollColumns(LaunchPass):
    """In: loops around a Parallel one that keeps what it computes in fragments. Out: where trips read shared
    tiles along their rows, an iteration does what it does in as many trips as a vector of these has
    elements."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such trips made one."""
        threads = thread_count(launch)

        def unrolled(block: Block) -> list[Stmt]:
            return [_unrolled(stmt, threads) for stmt in block]

        return replace(launch, body=rewrite_blocks(launch.body, unrolled))


def _unrolled(stmt: Stmt, threads: int) -> Stmt:
    """A loop by vectors; as it is where nothing is gained."""
    if type(stmt) is not For or stmt.kind != "serial" or not counts_from_zero(stmt):
        return stmt
    (*names, inner) = stmt.body or (None,)
    if (
        type(inner) is not Parallel
        or not all(isinstance(name, Bind) for name in names)
        or not _computes(inner, stmt)
    ):
        return stmt
    trips, count = int_value(stmt.stop), _neighbours(stmt)
    if not trips or count < 2 or trips % count or count * _work(inner, threads) > _MOST_STATEMENTS:
        return stmt
    dtype = dtype_of(stmt.var)
    number = tirx.Var(f"{stmt.var.name}_vector", dtype)
    body: list[Stmt] = []
    for trip in range(count):
        place = number * tirx.const(count, dtype) + tirx.const(trip, dtype)
        body += in_trip(replace(stmt, body=(*names, *inner.body)), place)
    stop = tirx.const(trips // count, dtype)
    return replace(stmt, var=number, stop=stop, body=(replace(inner, body=tuple(body)),))


def _computes(loop: Parallel, trips: For) -> bool:
    """Whether an iteration stores to an element of its own of fragments, in all ``trips`` the same, and reads
    no others of these."""
    named = accesses(loop.body)
    own = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    stores = [item for item in named if item.is_write and item.buffer not in own]
    if not stores or not is_scalar_code(loop.body) or loop.hints.given or colliding(loop):
        return False
    values = values_of(walk(trips.body))
    if any(uses(inlined(index, values), (trips.var,)) for item in stores for index in item.indices):
        return False
    held = {item.buffer for item in stores}
    return all(buffer.scope() == "local.fragment" and names_one_element(buffer, named) for buffer in held)


def _neighbours(loop: For) -> int:
    """How many trips read one vector of a shared tile's row; 1 where none do."""
    values = values_of(walk(loop.body))
    found = [item for item in accesses(loop.body) if item.buffer.scope() == "shared.dyn"]
    sizes = [element_bytes(str(item.buffer.dtype)) for item in found if _goes_along_row(item, loop, values)]
    return min(_MOST_TRIPS, WIDEST // min(sizes, default=WIDEST))


def _goes_along_row(item: Access, loop: For, values: Mapping[Var, Expr]) -> bool:
    """Whether trips read one element of a row behind the other."""
    *rows, column = (inlined(index, values) for index in item.indices)
    if any(uses(row, (loop.var,)) for row in rows) or not uses(column, (loop.var,)):
        return False
    linear = linear_in(column, [loop.var])
    return bool(linear) and int_value(linear[0]) == 1


def _work(loop: Parallel, threads: int) -> int:
    """How many statements a thread runs."""
    extents = [int_value(extent) or threads for extent in loop.extents]
    return -(-math.prod(extents) // threads) * sum(isinstance(stmt, Store) for stmt in walk(loop.body))
