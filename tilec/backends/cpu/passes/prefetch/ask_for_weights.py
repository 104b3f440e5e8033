"""Weights that are read once are asked for ahead of time.

A product of few rows goes over each row of a weight once, a loop over its columns within one over its rows.
It computes too little to hide memory behind, and prefetchers run less far ahead than a core can take lines.
What is asked for goes to the second cache: a core waits for fewer lines for its first one (24 on AMD's Zen 4,
which is 14 GB/s where memory takes 110 ns) than for that. Lines that several loops of a trip read come to the
first cache from there, a row ahead: loads across two lines that miss it take their room for lines each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tvm import sym, tirx

from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.passes.prefetch.asked_lines import AskedLines
from tilec.backends.cpu.products.tir import CACHE_LINE, FIRST, SECOND
from tilec.ir.exprs import dtype_of, int_value, linear_in, same, substitute, uses
from tilec.ir.nodes import Bind, Block, For, Launch, Parallel, walk
from tilec.lowering.analysis.accesses import Access, tensor_reads, values_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer

#: Bytes that are read from a row to the one that is asked for, at least: docs/performance/cpu-quantised.md.
_AHEAD = 32768
#: Type of sizes in bytes.
_BYTES = "int64"


class Line(NamedTuple):
    """What is asked for, and whether several loops of a trip read it."""

    item: Access
    shared: bool


#: What is asked for in each of some Parallels.
Lines = dict[Parallel, list[Line]]


class AskForWeights(LaunchPass):
    """In: a loop over rows of a tensor, in it loops over its columns, within a Parallel that reads. Out:
    the Parallel asks for what a later row has in their place, for each cache line of a trip once."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops asking ahead."""
        names = values_of(walk(launch.body))
        return replace(launch, body=rewrite_blocks(launch.body, lambda block: _asking(block, names)))


def _asking(block: Block, names: dict[Var, Expr]) -> Block:
    return tuple(chain.from_iterable(_with_rows(s, names) if isinstance(s, For) else (s,) for s in block))


def _with_rows(rows: For, names: dict[Var, Expr]) -> Block:
    nests = (_Columns(rows.var, (stmt,), names) for stmt in rows.body if isinstance(stmt, For))
    found = dict(chain.from_iterable(nest.lines() for nest in nests))
    if not (read := [line.item for lines in found.values() for line in lines]):
        return (rows,)
    later = tirx.Var("later", dtype_of(rows.var))
    body = rewrite_blocks(rows.body, lambda block: _ahead(block, found, rows.var, later))
    count = tirx.Cast(dtype_of(rows.var), _later(read, rows.var))
    return Bind(later, count, loc=rows.loc), replace(rows, body=body)


def _ahead(block: Block, found: Lines, row: Var, later: Var) -> Block:
    """A block whose Parallels ask for what ``found`` has of them, ``later`` rows on."""
    return tuple(
        replace(stmt, body=(*stmt.body, *_all_asked(found[stmt], row, later)))
        if isinstance(stmt, Parallel) and stmt in found
        else stmt
        for stmt in block
    )


def _all_asked(lines: list[Line], row: Var, later: Var) -> Iterator[AskAhead]:
    """Each line ``later`` rows on; of the next row, in the first cache, those that several loops read."""
    for item, shared in lines:
        yield _asked(item, row, later, SECOND)
        if shared:
            yield _asked(item, row, tirx.const(1, dtype_of(row)), FIRST)


def _asked(item: Access, row: Var, later: Expr, near: int) -> AskAhead:
    ahead = tuple(substitute(index, {row: row + later}) for index in item.indices)
    return AskAhead(item.buffer, item.indices, ahead, near)


def _later(read: list[Access], row: Var) -> Expr:
    """How many trips of the longest rows that are read come to that many bytes: a short row beside it, asked
    for earlier than that, would be out of the cache again before it is read."""
    sizes = {item.buffer: _row_bytes(item.buffer) * _rows_of_trip(item, row) for item in read}
    longest = reduce(tirx.max, sizes.values(), tirx.const(1, _BYTES))
    return tirx.truncdiv(tirx.const(_AHEAD - 1, _BYTES), longest) + 1


def _rows_of_trip(item: Access, row: Var) -> int:
    """How many rows of a tensor a trip of the loop over ``row`` goes on; 0 where that is not known."""
    factors = linear_in(item.indices[0], [row])
    return max(0, int_value(factors[0]) or 0) if factors else 0


@dataclass(frozen=True, eq=False)
class _Columns:
    """``loops`` over columns, from the outside in, in one whose variable ``row`` counts rows; ``names`` stand
    for values."""

    row: Var
    loops: tuple[For, ...]
    names: dict[Var, Expr]

    def lines(self) -> Iterator[tuple[Parallel, list[Line]]]:
        """What is asked for in each Parallel of the innermost loop and of those inside."""
        asked, found = AskedLines(), {}
        for stmt in self.loops[-1].body:
            if isinstance(stmt, For):
                yield from replace(self, loops=(*self.loops, stmt)).lines()
            elif isinstance(stmt, Parallel):
                found[stmt] = [item for item in self._lines(stmt) if asked.leaves(item, stmt)]
        for stmt, items in found.items():
            yield stmt, [Line(item, item in asked.shared) for item in items]

    def _lines(self, work: Parallel) -> list[Access]:
        """Of the elements of rows that ``work`` reads one in a cache line."""
        kept: list[Access] = []
        for item in tensor_reads(work.body, self.names):
            if self._is_of_row(item) and not any(is_near(item, other) for other in kept):
                kept.append(item)
        return kept

    def _is_of_row(self, item: Access) -> bool:
        """Whether an element of a tensor lies in the row at hand, in columns that no loop comes back to."""
        (row, *columns), picks = item.indices, [loop.var for loop in self.loops if _trips(loop) != 1]
        if not _rows_of_trip(item, self.row) or uses(row, picks):
            return False
        again = any(uses(index, (self.row,)) for index in columns)
        return not again and all(any(uses(index, (var,)) for index in columns) for var in picks)


def _row_bytes(buffer: Buffer) -> Expr:
    """From the start of a row of a tensor to that of the next one."""
    apart = buffer.strides[:1] or buffer.shape[1:]
    size = tirx.const(element_bytes(str(buffer.dtype)), _BYTES)
    for count in apart:
        size = size * tirx.Cast(_BYTES, count)
    return size


def _trips(loop: For) -> int:
    """How often a loop runs at most, and once at least."""
    return max(1, int(sym.Analyzer().const_int_bound(loop.stop - loop.start).max_value))


def is_near(item: Access, other: Access) -> bool:
    """Whether two elements of a row lie less than a cache line apart."""
    (*outer, last), (*others, before) = item.indices, other.indices
    if not item.buffer.same_as(other.buffer) or not all(map(same, outer, others)):
        return False
    apart = int_value(sym.Analyzer().simplify(last - before))
    return apart is not None and abs(apart) * element_bytes(str(item.buffer.dtype)) < CACHE_LINE
