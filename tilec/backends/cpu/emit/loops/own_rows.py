"""Short rows of which each iteration has one and stores all: it holds them, and stores them behind all else.

for i in parallel(n): S[i, 0] = S[i, 1]; s[0] = S[i, 0] + s[0]; S[i, 1] = X[i]
->
for i in parallel(n):
    r = alloc(float32, (2,), "local")
    r[0] = S[i, 0]; r[1] = S[i, 1]
    r[0] = r[1]; s[0] = r[0] + s[0]; r[1] = X[i]
    S[i, 0] = r[0]; S[i, 1] = r[1]

Lanes then wait for no store before they read, and rows side by side are whole vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.vectors.pieces import WIDEST_GAP
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.renaming import in_trip
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, loads, same_all, transform, uses
from tilec.ir.nodes import Alloc, Block, For, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import Rewriter, defined
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var


def with_own_rows(body: Block, lane: Var) -> Block:
    """``body``, whose iterations differ by ``lane``, with short rows that it stores held while it runs."""
    if not is_scalar_code(body) or not any(_is_short(buffer) for buffer in written_in(body)):
        return body
    whole = tuple(made for stmt in body for made in _written_out(stmt))
    buffers = [stmt.buffer for stmt in whole if isinstance(stmt, Store) and _is_short(stmt.buffer)]
    held = _Held(whole, lane)
    for buffer in dict.fromkeys(buffers):
        held.hold(buffer)
    return held.result() if held.rows else body


def _is_short(buffer: Var) -> bool:
    """Whether lanes may read and write the rows of a buffer as vectors."""
    size = int_value(buffer.shape[-1]) if len(buffer.shape) > 1 else None
    return buffer.scope() not in PER_THREAD and size is not None and 1 < size <= WIDEST_GAP


def _written_out(stmt: Stmt) -> Block:
    """The trips of a short loop that stores to short rows one after the other."""
    trips = known_trips(stmt) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or trips is None or len(trips) > WIDEST_GAP:
        return (stmt,)
    if not any(_is_short(buffer) for buffer in written_in(stmt.body)):
        return (stmt,)
    return tuple(made for trip in trips for made in in_trip(stmt, trip))


class _Held(Rewriter):
    """A body whose rows are arrays of an iteration: ``rows`` has for a buffer its array, and where a row
    lies."""

    def __init__(self, body: Block, lane: Var) -> None:
        super().__init__()
        self._body, self._lane = body, lane
        self._names, self._analyzer = values_of(walk(body)), sym.Analyzer()
        self._moving = {var for stmt in walk(body) for var in defined(stmt)}
        self._written = written_in(body)
        self.rows: dict[Var, tuple[Var, tuple[Expr, ...]]] = {}

    def hold(self, buffer: Var) -> None:
        """Has the row of a buffer held if the iteration reads some of it and stores all of it."""
        size = int_value(buffer.shape[-1]) or 0
        items = [item for item in accesses(self._body) if item.buffer.same_as(buffer)]
        places = [tuple(inlined(index, self._names) for index in item.indices) for item in items]
        row, stored = places[0][:-1], [stmt for stmt in self._body if isinstance(stmt, Store)]
        own = {self._place(stmt.indices) for stmt in stored if stmt.buffer.same_as(buffer)}
        within = all(self._place(at) in range(size) and same_all(at[:-1], row) for at in places)
        if within and own == set(range(size)) and self._is_apart(row) and any(not i.is_write for i in items):
            tile = tirx.decl_buffer((size,), str(buffer.dtype), str(buffer.name), scope="local")
            self.rows[buffer] = tile, row

    def _place(self, indices: Sequence[Expr]) -> int | None:
        """Which element of its row an access has; None where that is not known."""
        return int_value(self._analyzer.simplify(inlined(indices[-1], self._names)))

    def _is_apart(self, row: tuple[Expr, ...]) -> bool:
        """Whether lanes have a row each, side by side, which nothing in the body moves."""
        parts = {load.source for index in row for load in loads(index)}
        if any(uses(index, self._moving) for index in row) or not self._written.isdisjoint(parts):
            return False
        linear = linear_in(row[-1], [self._lane])
        return (
            bool(linear) and int_value(linear[0]) == 1 and not any(uses(at, (self._lane,)) for at in row[:-1])
        )

    def result(self) -> Block:
        """The body between what reads rows and what stores them."""
        before: list[Stmt] = []
        behind: list[Stmt] = []
        for buffer, (tile, row) in self.rows.items():
            before.append(Alloc(tile))
            for place in range(int_value(buffer.shape[-1]) or 0):
                at = tirx.const(place, dtype_of(row[-1]))
                before.append(Store(tile, (at,), tirx.BufferLoad(buffer, [*row, at])))
                behind.append(Store(buffer, (*row, at), tirx.BufferLoad(tile, [at])))
        return (*before, *self.block(self._body), *behind)

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """An element of a row that is held."""
        return self._held(buffer, indices) if buffer in self.rows else (buffer, indices)

    def expr(self, expr: Expr) -> Expr:
        """A value with what it reads of rows."""
        return transform(expr, self._read)

    def _read(self, node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or node.source not in self.rows:
            return None
        tile, at = self._held(node.source, node.indices)
        return tirx.BufferLoad(tile, list(at))

    def _held(self, buffer: Var, indices: Sequence[Expr]) -> tuple[Var, tuple[Expr, ...]]:
        place = tirx.const(self._place(indices) or 0, dtype_of(indices[-1]))
        return self.rows[buffer][0], (place,)
