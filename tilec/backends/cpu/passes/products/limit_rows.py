"""Rows of a block that lie outside of every tensor are not computed.

A block of 128 queries may have one that exists. Its products leave out the rows that their first operand
lacks (`forward_operands`); here so does all that is done to these rows on the way to the tensor that drops
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cpu.nodes import MicroGemm, PackWords
from tilec.ir.exprs import dtype_of, int_value, same, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    For,
    If,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    While,
    children,
    is_global,
    walk,
)
from tilec.ir.traits import buffers, defined
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What control flow is made of: what it holds is looked at, statement by statement.
_AROUND = (For, If, Pipelined, While)
#: What does nothing but compute and write elements.
_PLAIN = (Alloc, Bind, For, If, Parallel, Store)


class LimitRows(LaunchPass):
    """In: products and Parallel loops over all rows of tiles. Out: where these go to rows of a tensor that
    may end before, and nothing goes from one row to another, the same over the rows that the tensor has."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its rows limited."""
        for limit in _limits(launch):
            found = _Rows(launch, limit)
            if found.are_apart() and found.has_products():
                return replace(launch, body=rewrite_blocks(launch.body, found.limited))
        return launch


@dataclass(frozen=True, eq=False)
class _Limit:
    """Tiles of ``rows`` rows, of which the first ``count`` may lie inside of a tensor; ``tile`` is one."""

    tile: Var
    rows: int
    count: Expr


def _limits(launch: Launch) -> Iterator[_Limit]:
    """What stores of tiles to tensors say of the rows that count."""
    own = {var for stmt in walk(launch.body) for var in defined(stmt)}
    for loop in _outer(launch.body):
        items = accesses((loop,)) if isinstance(loop, Parallel) else []
        tiles = [item for item in items if not item.is_write and not is_global(item.buffer)]
        for written in (item for item in items if item.is_write and is_global(item.buffer)):
            for tile in tiles:
                count = _count(tile.indices[0], written, own)
                rows = int_value(tile.buffer.shape[0])
                if count is not None and rows is not None and rows > 1:
                    yield _Limit(tile.buffer, rows, count)


def _count(row: Expr, written: Access, own: set[Var]) -> Expr | None:
    """How many values of the variable ``row`` lie inside of what is written at them, by names from outside of
    the launch alone."""
    if not isinstance(row, Var):
        return None
    analyzer = sym.Analyzer()
    for index, size in zip(written.indices, written.buffer.shape, strict=True):
        if dtype_of(index) != dtype_of(row) or not uses(index, (row,)):
            continue
        count = analyzer.simplify(size - (index - row))
        names = {node for node in walk_expr(count) if isinstance(node, Var)}
        return None if names & own or int_value(count) is not None else count
    return None


class _Rows:
    """The statements of a launch that work on rows of ``tiles``, those of a limit and what they meet."""

    def __init__(self, launch: Launch, limit: _Limit) -> None:
        self.limit = limit
        self.analyzer = sym.Analyzer()
        self.outer = list(_outer(launch.body))
        self.addressed = addressed_in(launch.body)
        self.around = [stmt for stmt in walk(launch.body) if isinstance(stmt, _AROUND)]
        self.tiles = {limit.tile}
        size = 0
        while size != len(self.tiles):
            size = len(self.tiles)
            for stmt in self.outer:
                self.tiles |= self._joined(stmt)

    def _touches(self, stmt: Stmt) -> bool:
        return any(name in self.tiles for inner in walk((stmt,)) for name in buffers(inner))

    def _joined(self, stmt: Stmt) -> set[Var]:
        """The tiles that a statement on rows has in common with them."""
        row = self._row(stmt) if self._touches(stmt) else None
        if row is None:
            return set()
        found = (item.buffer for item in accesses((stmt,)) if item.indices[0].same_as(row))
        return {buffer for buffer in found if self._is_tile(buffer)}

    def _is_tile(self, buffer: Var) -> bool:
        return not is_global(buffer) and int_value(buffer.shape[0]) == self.limit.rows

    def _row(self, stmt: Stmt) -> Var | None:
        """The variable of a Parallel that counts rows of tiles."""
        if not isinstance(stmt, Parallel):
            return None
        firsts = [item.indices[0] for item in accesses((stmt,)) if item.buffer in self.tiles]
        return next((var for var in stmt.vars if any(first.same_as(var) for first in firsts)), None)

    def has_products(self) -> bool:
        """Whether a product computes some of the rows."""
        return any(isinstance(stmt, MicroGemm) and self._touches(stmt) for stmt in self.outer)

    def are_apart(self) -> bool:
        """Whether no statement takes anything from one row to another, or to a tensor that would keep it."""
        steers = any(name in self.tiles for stmt in self.around for name in buffers(stmt))
        if steers or self.addressed & self.tiles:
            return False
        return all(self._keeps_to_rows(stmt) for stmt in self.outer if self._touches(stmt))

    def _keeps_to_rows(self, stmt: Stmt) -> bool:
        if isinstance(stmt, MicroGemm):
            return self._is_product_of_rows(stmt)
        if isinstance(stmt, PackWords):
            return self._is_packing_of_rows(stmt)
        if not isinstance(stmt, Parallel):
            return isinstance(stmt, Alloc)
        row = self._row(stmt)
        return self._is_beyond(stmt) if row is None else self._stays(stmt, row)

    def _stays(self, loop: Parallel, row: Var) -> bool:
        if not all(isinstance(inner, _PLAIN) for inner in walk(loop.body)):
            return False
        own = {inner.buffer for inner in walk(loop.body) if isinstance(inner, Alloc)}
        return all(
            self._is_own_row(item, row)
            for item in accesses((loop,))
            if item.buffer not in own and (item.is_write or item.buffer in self.tiles)
        )

    def _is_own_row(self, item: Access, row: Var) -> bool:
        if item.buffer in self.tiles:
            return bool(item.indices[0].same_as(row))
        count = _count(row, item, set()) if is_global(item.buffer) else None
        return count is not None and same(count, self.limit.count)

    def _is_product_of_rows(self, gemm: MicroGemm) -> bool:
        if gemm.body or gemm.b.region.buffer in self.tiles or gemm.c.buffer not in self.tiles:
            return False
        rows = int_value(gemm.c.extent[0]) == self.limit.rows and len(gemm.c.start) == 2
        a = gemm.a.region
        straight = a.buffer not in self.tiles or (gemm.a.row == 0 and int_value(a.start[0]) == 0)
        return rows and straight

    def _is_packing_of_rows(self, stmt: PackWords) -> bool:
        """Whether rows of a tile become words that are the left operand of products of rows alone."""
        source, words = stmt.src, stmt.dst.buffer
        whole = source.col == 0 and int_value(source.region.start[0]) == 0
        others = [each for each in self.outer if each is not stmt and words in buffers(each)]
        return whole and all(isinstance(each, Alloc) or self._multiplies(each, words) for each in others)

    def _multiplies(self, stmt: Stmt, words: Var) -> bool:
        """Whether a product into the tiles has ``words`` as its left operand."""
        return (
            isinstance(stmt, MicroGemm)
            and stmt.c.buffer in self.tiles
            and not stmt.b.region.buffer.same_as(words)
        )

    def _is_beyond(self, loop: Parallel) -> bool:
        """Whether a loop touches nothing but rows behind those that count."""
        items = accesses((loop,))
        if any(item.buffer not in self.tiles or not item.is_write for item in items):
            return False
        last = tirx.min(self.limit.count, tirx.const(self.limit.rows, dtype_of(self.limit.count)))
        return all(self._is_at_least(item.indices[0], loop, last) for item in items)

    def _is_at_least(self, index: Expr, loop: Parallel, last: Expr) -> bool:
        bases = [self.analyzer.simplify(index - var) for var in loop.vars if dtype_of(var) == dtype_of(index)]
        return any(not uses(base, loop.vars) and self.analyzer.can_prove(base >= last) for base in bases)

    def limited(self, block: Block) -> list[Stmt]:
        """A block whose statements on rows leave out those that do not count."""
        kept = [stmt for stmt in block if not (isinstance(stmt, Parallel) and self._is_dropped(stmt))]
        return [self._limited(stmt) for stmt in kept]

    def _is_dropped(self, loop: Parallel) -> bool:
        return self._touches(loop) and self._row(loop) is None and loop in self.outer

    def _limited(self, stmt: Stmt) -> Stmt:
        if not self._touches(stmt) or stmt not in self.outer:
            return stmt
        if isinstance(stmt, MicroGemm):
            return replace(stmt, rows=self._fewer(stmt.rows))
        if isinstance(stmt, PackWords):
            return replace(stmt, columns=self._fewer(stmt.src.region.extent[0]))
        row = self._row(stmt)
        if row is None or not isinstance(stmt, Parallel) or dtype_of(row) != dtype_of(self.limit.count):
            return stmt
        extents = (
            self._fewer(extent) if var.same_as(row) else extent
            for var, extent in zip(stmt.vars, stmt.extents, strict=True)
        )
        return replace(stmt, extents=tuple(extents))

    def _fewer(self, rows: Expr | int) -> Expr | int:
        """Those of the first ``rows`` that count; what is no number is limited already."""
        known, count = int_value(rows), self.limit.count
        return rows if known is None else tirx.min(count, tirx.const(known, dtype_of(count)))


def _outer(block: Block) -> Iterator[Stmt]:
    """The statements of a block, what control flow holds in place of it."""
    for stmt in block:
        if isinstance(stmt, _AROUND):
            yield from (inner for part in children(stmt) for inner in _outer(part))
        else:
            yield stmt
