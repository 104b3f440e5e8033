"""Rows of a block that lie outside of every tensor, or that no store takes, are not computed.

A block of 128 queries may have one that exists. Its products leave out the rows that their first operand
lacks (`forward_operands`); here so does all that is done to these rows on the way to the tensor that drops
them. Of sequences back to back the rows behind one are those of the next: a branch around the store says how
many a block has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cpu.nodes import AskAhead, MicroGemm, PackWords
from tilec.ir.exprs import cast_to, conjuncts, dtype_of, int_value, same, uses
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
from tilec.lowering.analysis.accesses import Access, accesses, own_accesses
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What control flow is made of: what it holds is looked at, statement by statement.
_AROUND = (For, If, Pipelined, While)
#: The types of indices, the narrower one first.
_WIDE = ("int32", "int64")
#: The conditions of the branches around a statement.
Conds: TypeAlias = "tuple[Expr, ...]"
#: What does nothing but compute and write elements.
_PLAIN = (Alloc, AskAhead, Bind, For, If, Parallel, Store)


class LimitRows(LaunchPass):
    """In: products and Parallel loops over all rows of tiles. Out: where these go to rows of a tensor that
    may end before, or by a branch that tests the row, and nothing goes from one row to another, the same over
    the rows that the tensor has, or that the branch lets through."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its rows limited."""
        for limit in _limits(launch):
            found = _Rows(launch, limit, operands=False)
            if not found.are_apart() or not found.has_products():
                continue
            made = _Rows(launch, limit, operands=True)
            rows = made if made.are_apart() else found
            return replace(launch, body=rewrite_blocks(launch.body, rows.limited))
        return launch


@dataclass(frozen=True, eq=False)
class _Limit:
    """Tiles of ``rows`` rows, of which the first ``count`` may lie inside of a tensor, or be stored; ``tile``
    is one."""

    tile: Var
    rows: int
    count: Expr


def _limits(launch: Launch) -> Iterator[_Limit]:
    """What stores of tiles to tensors say of the rows that count."""
    for loop in _outer(launch.body):
        work = list(_work(loop.body)) if isinstance(loop, (MicroGemm, Parallel)) else []
        tiles = [item for item, _ in work if not item.is_write and not is_global(item.buffer)]
        for written, conds in work:
            if written.is_write and is_global(written.buffer):
                for tile in tiles:
                    yield from _limits_of(tile, written, conds)


def _limits_of(tile: Access, written: Access, conds: Conds) -> Iterator[_Limit]:
    """What a store under conditions says of the rows of a tile that it reads."""
    row, rows = tile.indices[0], int_value(tile.buffer.shape[0])
    if not isinstance(row, Var) or rows is None or rows <= 1:
        return
    for count in _counts(row, rows, written, conds):
        if int_value(count) is None:
            yield _Limit(tile.buffer, rows, count)


def _work(block: Block, conds: Conds = ()) -> Iterator[tuple[Access, Conds]]:
    """The elements that plain statements name, each with the conditions of the branches around it."""
    for stmt in block:
        yield from ((item, conds) for item in own_accesses(stmt))
        if isinstance(stmt, If):
            yield from _work(stmt.then, (*conds, *conjuncts(stmt.cond)))
            yield from _work(stmt.orelse, conds)
        else:
            yield from (pair for inner in children(stmt) for pair in _work(inner, conds))


def _counts(row: Var, rows: int, written: Access, conds: Conds) -> Iterator[Expr]:
    """How many of the first ``rows`` values of the variable ``row`` fulfil each of the conditions that bounds
    them, and how many lie inside of what is written at them, which are no fewer where a condition says it."""
    counts = (*(_first_rows(row, rows, cond) for cond in conds), _count(row, written))
    yield from (count for count in counts if count is not None)


def _count(row: Var, written: Access) -> Expr | None:
    """How many values of the variable ``row`` lie inside of what is written at them."""
    analyzer = sym.Analyzer()
    for index, size in zip(written.indices, written.buffer.shape, strict=True):
        if dtype_of(index) == dtype_of(row) and uses(index, (row,)):
            return analyzer.simplify(size - (index - row))
    return None


def _first_rows(row: Var, rows: int, cond: Expr) -> Expr | None:
    """How many of the first ``rows`` values of ``row`` are less than a condition says that they are, at least
    0 and in the type of the variable; None where it says no such thing."""
    if not isinstance(cond, tirx.LT) or dtype_of(cond.a) not in _WIDE:
        return None
    base, limit = _less_row(cond.a, row), cond.b
    if base is None or uses(limit, (row,)):
        return None
    kind = dtype_of(limit)
    left = tirx.max(limit - cast_to(base, kind), tirx.const(0, kind))
    return left if kind == dtype_of(row) else cast_to(tirx.min(left, tirx.const(rows, kind)), dtype_of(row))


def _less_row(index: Expr, row: Var) -> Expr | None:
    """What an index is without a row that is added to it, before it is converted or after; None where none
    is."""
    inner = index.value if isinstance(index, tirx.Cast) else index
    if dtype_of(inner) not in _WIDE or dtype_of(index) < dtype_of(inner):
        return None
    base = sym.Analyzer().simplify(inner - cast_to(row, dtype_of(inner)))
    return None if uses(base, (row,)) else base


class _Rows:
    """The statements of a launch that work on rows of ``tiles``, those of a limit and what they meet: with
    ``operands`` also those that products of these rows read."""

    def __init__(self, launch: Launch, limit: _Limit, *, operands: bool) -> None:
        self.limit, self.operands = limit, operands
        self.body = launch.body
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
        sums = self._multiplied(stmt) if isinstance(stmt, MicroGemm) else []
        found = (item.buffer for item in accesses((stmt,)) if item.indices[0].same_as(row))
        return {buffer for buffer in (*sums, *found) if self._is_tile(buffer)}

    def _multiplied(self, gemm: MicroGemm) -> list[Var]:
        """The tiles of a product whose rows go together."""
        a = gemm.a
        straight = self.operands and a.row == 0 and int_value(a.region.start[0]) == 0
        return [gemm.c.buffer, a.region.buffer] if straight else [gemm.c.buffer]

    def _is_tile(self, buffer: Var) -> bool:
        return not is_global(buffer) and int_value(buffer.shape[0]) == self.limit.rows

    def _row(self, stmt: Stmt) -> Var | None:
        """The variable of a product or of a Parallel that counts rows of tiles."""
        if isinstance(stmt, MicroGemm):
            return stmt.vars[0]
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
        if steers or self.addressed & self.tiles or not self._is_known():
            return False
        return all(self._keeps_to_rows(stmt) for stmt in self.outer if self._touches(stmt))

    def _is_known(self) -> bool:
        """Whether all names in the limit stand for values in front of the first statement on rows."""
        before = takewhile(lambda stmt: not self._works_on_rows(stmt), self.body)
        known = {stmt.var for stmt in before if isinstance(stmt, Bind)}
        own = {var for stmt in walk(self.body) for var in defined(stmt)} - known
        return not own & {node for node in walk_expr(self.limit.count) if isinstance(node, Var)}

    def _works_on_rows(self, stmt: Stmt) -> bool:
        return not isinstance(stmt, Alloc) and self._touches(stmt)

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
        return self._stay(loop.body, row)

    def _stay(self, body: Block, row: Var) -> bool:
        """Whether what is done to a row goes to that row of tiles, and of tensors that drop it."""
        if not all(isinstance(inner, _PLAIN) for inner in walk(body)):
            return False
        own = {inner.buffer for inner in walk(body) if isinstance(inner, Alloc)}
        return all(
            self._is_own_row(item, conds, row)
            for item, conds in _work(body)
            if item.buffer not in own and (item.is_write or item.buffer in self.tiles)
        )

    def _is_own_row(self, item: Access, conds: Conds, row: Var) -> bool:
        if item.buffer in self.tiles:
            return bool(item.indices[0].same_as(row))
        counts = _counts(row, self.limit.rows, item, conds) if is_global(item.buffer) else ()
        return any(same(count, self.limit.count) for count in counts)

    def _is_product_of_rows(self, gemm: MicroGemm) -> bool:
        if gemm.b.region.buffer in self.tiles or gemm.c.buffer not in self.tiles:
            return False
        if not self._stay(gemm.body, gemm.vars[0]):
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
