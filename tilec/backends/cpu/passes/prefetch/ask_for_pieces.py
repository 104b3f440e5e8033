"""The pieces of rows that the next trip unpacks are asked for while a trip unpacks its own.

Rows of weights of few bits are short pieces to a step along K: a tile of 128 rows reads a line or two of
each, at as many places as there are rows, which no prefetcher follows. Each piece would wait for memory, or
for the last cache. They come to the second cache (docs/performance/cpu-quantised.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.nodes import AskAhead, MicroGemm
from tilec.backends.cpu.passes.prefetch.ask_for_weights import is_near
from tilec.backends.cpu.passes.prefetch.trips import AskInTrips, Trips
from tilec.backends.cpu.products.tir import CACHE_LINE, SECOND
from tilec.ir.exprs import dtype_of, int_value, substitute, uses
from tilec.ir.nodes import Block, For, Parallel, Pipelined, Stmt
from tilec.lowering.analysis.accesses import Access, tensor_reads
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import replaced

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Lines of a piece from which on prefetchers find the next ones.
_STREAM = 4

#: Trips from one that asks to the one that reads: a piece ends in the line in which the next one begins.
_AHEAD = 2

#: Trips whose steps are looked at: blocks of a format may have several trips.
_LOOKED_AT = 8


class _Trips(Trips):
    """The trips of one loop."""

    def asking(self) -> For | Pipelined:
        """The loop, whose fills ask ahead."""
        if not any(isinstance(stmt, MicroGemm) for stmt in self.loop.body):
            return self.loop
        made: dict[Stmt, Block] = {}
        known: set[Var] = set()
        for work, rows in (nest for stmt in self.loop.body for nest in _nests(stmt, ())):
            pieces = [item for item in self._pieces(work, rows) if item.buffer not in known]
            known |= {item.buffer for item in pieces}
            if pieces:
                made[work] = (replace(work, body=(*work.body, *map(self._asked, pieces))),)
        return replace(self.loop, body=replaced(self.loop.body, made))

    def _pieces(self, work: Parallel, rows: tuple[Var, ...]) -> list[Access]:
        """Of the elements of pieces that ``work`` reads in each of ``rows`` one in a cache line."""
        kept: list[Access] = []
        for item in tensor_reads(work.body, self.names):
            if self._is_of_piece(item, rows) and not any(is_near(item, other) for other in kept):
                kept.append(item)
        return kept

    def _is_of_piece(self, item: Access, rows: tuple[Var, ...]) -> bool:
        """Whether an element lies in a row that the loops have one of, a short way from the one that the next
        trip has in its place."""
        row, *_ = item.indices
        if not uses(row, rows) or uses(row, (self.loop.var,)):
            return False
        steps = [self._step(item, number) for number in range(_LOOKED_AT)]
        return any(steps) and all(step is not None and abs(step) < _STREAM * CACHE_LINE for step in steps)

    def _step(self, item: Access, number: int) -> int | None:
        """Bytes from an element of trip ``number`` to that of the next one; None where that is not known."""
        buffer, analyzer = item.buffer, sym.Analyzer()
        if len(buffer.strides):
            return None
        at = {self.loop.var: tirx.const(number, dtype_of(self.loop.var))}
        size: int | None = element_bytes(str(buffer.dtype))
        apart = 0
        later = self._later(item, 1)
        for here, there, extent in reversed([*zip(item.indices, later, buffer.shape, strict=True)]):
            step = int_value(analyzer.simplify(substitute(there - here, at)))
            if step is None or (step and size is None):
                return None
            apart += step * (size or 0)
            known = int_value(extent)
            size = None if size is None or known is None else size * known
        return apart

    def _later(self, item: Access, trips: int) -> tuple[Expr, ...]:
        """The indices that an element has so many ``trips`` later."""
        trip = self.loop.var
        later = {trip: trip + tirx.const(trips, dtype_of(trip))}
        return tuple(substitute(index, later) for index in item.indices)

    def _asked(self, item: Access) -> AskAhead:
        return AskAhead(item.buffer, item.indices, self._later(item, _AHEAD), SECOND)


def _nests(stmt: Stmt, rows: tuple[Var, ...]) -> Iterator[tuple[Parallel, tuple[Var, ...]]]:
    """The loops of a nest whose last variable is for lanes, each with the variables around that."""
    if isinstance(stmt, For):
        for inner in stmt.body:
            yield from _nests(inner, (*rows, stmt.var))
    elif isinstance(stmt, Parallel):
        yield stmt, (*rows, *stmt.vars[:-1])


class AskForPieces(AskInTrips):
    """In: a loop of products along rows of tensors, in it loops over these rows that read a piece of each, of
    few cache lines. Out: these ask for the piece of a later trip, a prefetch for each line, once for each
    tensor."""

    trips = _Trips
