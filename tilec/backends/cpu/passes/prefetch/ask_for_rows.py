"""The next row of a tensor is asked for while a row is worked on.

A kernel of rows goes over each more than once. The first time it waits for memory, since prefetchers find
what comes next within a page at most, and short rows end with it. The next times it waits for nothing, which
leaves the memory time to bring the row that comes next. Rows longer than a page are left to prefetchers:
asked for ahead they would take the room of the row that is at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import AskAhead, MicroGemm
from tilec.backends.cpu.products.tir import PAGE
from tilec.ir.exprs import cast_to, dtype_of, int_value, linear_in, substitute, uses
from tilec.ir.nodes import Block, Launch, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import Access, same_extents, tensor_reads, values_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class AskForRows(LaunchPass):
    """In: Parallel loops over the columns of one row, one behind the other, in a Parallel over rows or in a
    block that has one row. Out: where a loop reads a row of a tensor, the next loop over as many columns asks
    for what the next row has in its place. Launches with products bring their operands by other means."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops asking ahead."""
        if any(isinstance(stmt, MicroGemm) for stmt in walk(launch.body)):
            return launch
        names = values_of(launch.body)
        return replace(launch, body=_asking(launch.body, _Row(launch.block_vars[0], names)))


def _asking(block: Block, row: _Row) -> Block:
    """``block``, which is what is done with one row."""
    return tuple(_rewritten(stmt, row) for stmt in block)


def _rewritten(stmt: Stmt, row: _Row) -> Stmt:
    if not isinstance(stmt, Parallel) or len(stmt.vars) > 1:
        return stmt
    if any(isinstance(inner, Parallel) for inner in walk(stmt.body)):
        return replace(stmt, body=_asking(stmt.body, _Row(stmt.vars[0], row.names)))
    asked = row.asked_in(stmt)
    row.take(stmt)
    return replace(stmt, body=(*stmt.body, *asked))


@dataclass(eq=False)
class _Row:
    """What loops over the columns of a row have read so far. ``var`` counts rows, ``names`` are those of what
    rows begin with."""

    var: Var
    names: dict[Var, Expr]
    before: Parallel | None = None
    reads: list[Access] = field(default_factory=list)
    known: set[Var] = field(default_factory=set)

    def take(self, loop: Parallel) -> None:
        """Remembers which tensors ``loop`` is the first to read the row of."""
        self.before, self.reads = loop, []
        for item in tensor_reads(loop.body, self.names):
            longer = (int_value(loop.extents[0]) or 0) > _most(item)
            if item.buffer not in self.known and not longer and self._is_of_row(item, loop.vars[0]):
                self.reads.append(item)
                self.known.add(item.buffer)

    def asked_in(self, loop: Parallel) -> Block:
        """What ``loop`` is to ask for."""
        if self.before is None or not same_extents(self.before, loop):
            return ()
        columns = {self.before.vars[0]: loop.vars[0]}
        return tuple(self._asked(item, columns, loop.extents[0]) for item in self.reads)

    def _asked(self, item: Access, columns: dict[Var, Expr], count: int | Expr) -> AskAhead:
        here = tuple(substitute(index, columns) for index in item.indices)
        step = _one_in_a_page(count, item, dtype_of(self.var))
        following = {self.var: self.var + step}
        return AskAhead(item.buffer, here, tuple(substitute(index, following) for index in here))

    def _is_of_row(self, item: Access, column: Var) -> bool:
        """Whether an element lies in a row of a tensor, of which the next iteration has the next one."""
        *outer, last = item.indices
        factors = linear_in(last, [column])
        if not factors or int_value(factors[0]) != 1 or any(uses(index, (column,)) for index in outer):
            return False
        return any(uses(index, (self.var,)) for index in outer)


def _one_in_a_page(count: int | Expr, item: Access, dtype: str) -> Expr:
    """1 where ``count`` elements are a page at most, else 0."""
    if int_value(count) is not None:
        return tirx.const(1, dtype)
    left = _most(item) + 1 - cast_to(count, dtype)
    return tirx.max(tirx.min(left, tirx.const(1, dtype)), tirx.const(0, dtype))


def _most(item: Access) -> int:
    return PAGE // element_bytes(str(item.buffer.dtype))
