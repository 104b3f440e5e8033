"""The tile that is filled next is asked for while one is filled.

Rows of pages lie where a table says, those of a head are pieces of longer rows, so that no prefetcher finds
them, and what is multiplied between two tiles is too long for a core to look beyond it: each tile would wait
for memory. Where the rows of the next one lie is known while a tile is filled: values lie where their keys
do, the next keys where the table says a trip further. They come to the second cache: a tile is about as large
as the first. The times are in docs/performance/cpu-attention.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import AskAhead, MicroGemm
from tilec.backends.cpu.passes.prefetch.trips import AskInTrips, Trips
from tilec.backends.cpu.products.tir import SECOND
from tilec.ir.exprs import dtype_of, inlined, loads, substitute, uses
from tilec.ir.nodes import For, Parallel, Pipelined, Stmt, walk
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import Access, accesses, same_extents, values_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Variables of a loop over rows and columns.
_AXES = 2


class _Trips(Trips):
    """The trips of one loop."""

    def asking(self) -> For | Pipelined:
        """The loop, whose fills ask ahead."""
        fills = [stmt for stmt in self.loop.body if any(self._rows_apart(stmt))]
        if not fills or not any(isinstance(stmt, MicroGemm) for stmt in self.loop.body):
            return self.loop
        following = dict(zip(fills, (*fills[1:], fills[0]), strict=True))
        body = (self._ahead(s, following[s], s is fills[-1]) if s in following else s for s in self.loop.body)
        return replace(self.loop, body=tuple(body))

    def _rows_apart(self, stmt: Stmt) -> Iterator[Access]:
        """The elements of tensors that lie in rows apart which ``stmt``, a loop over rows and columns, reads
        in this trip alone, at places that are known all over the trip. Names from outside of the loop stay:
        written out they may be long."""
        if not isinstance(stmt, Parallel) or len(stmt.vars) != _AXES:
            return
        inner = {var for each in walk(self.loop.body) for var in defined(each)} - set(stmt.vars)
        of_trip = values_of(walk(self.loop.body))
        for item in accesses(stmt.body):
            *rows, column = (inlined(index, self.names) for index in item.indices)
            anew = any(uses(row, (self.loop.var,)) for row in rows) and _are_apart(rows, stmt.vars[0])
            is_known = not any(_names(row, inner) for row in rows)
            if anew and is_known and column.same_as(stmt.vars[1]) and item.buffer.scope() == "global":
                yield replace(item, indices=tuple(inlined(index, of_trip) for index in item.indices))

    def _ahead(self, fill: Stmt, following: Stmt, is_last: bool) -> Stmt:
        """``fill``, which asks for what ``following`` reads, in the next trip where it ``is_last``."""
        assert isinstance(fill, Parallel)
        assert isinstance(following, Parallel)
        if not same_extents(fill, following):
            return fill
        trip = self.loop.var
        here: dict[Var, Expr] = dict(zip(following.vars, fill.vars, strict=True))
        there = {**here, trip: trip + tirx.const(1, dtype_of(trip))} if is_last else here
        asked = [_asked(item, here, there) for item in self._rows_apart(following) if not item.is_write]
        return replace(fill, body=(*fill.body, *asked))


def _names(index: Expr, inner: set[Var]) -> bool:
    """Whether an index depends on one of these variables or buffers."""
    return uses(index, inner) or any(load.source in inner for load in loads(index))


def _are_apart(rows: list[Expr], row: Var) -> bool:
    """Whether rows of a loop do not follow each other in memory: they are looked up, or pieces of longer
    ones, such as those of a head."""
    looked_up = any(True for each in rows for _ in loads(each))
    return looked_up or not uses(rows[-1], (row,))


def _asked(item: Access, here: dict[Var, Expr], there: dict[Var, Expr]) -> AskAhead:
    at, ahead = (tuple(substitute(index, at) for index in item.indices) for at in (here, there))
    return AskAhead(item.buffer, at, ahead, SECOND)


class AskForTiles(AskInTrips):
    """In: a loop of products, in it Parallel loops over rows and columns that read rows of tensors which do
    not follow each other in memory, others in every trip. Out: each asks for what the next of them reads, the
    last one for what the first one reads in the next trip, where they are over as many rows and columns: a
    prefetch for each vector."""

    trips = _Trips
