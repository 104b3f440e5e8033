"""The row of a result is asked for while what it is made of is computed.

A store to a line that is far away waits until the line has come. The loop that scales powers by their sum has
little else to do, and then takes as long as memory does, while the loop in front of it, which computes these
powers of what the caches hold, leaves memory idle. Loops of squares or differences do not: they are as fast
as the second cache, and rather lost by it, as did loops that wait for tensors themselves. The times are in
docs/performance/cpu-rows.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call

from tilec.backends.cpu.math import is_expanded
from tilec.backends.cpu.nodes import AskAhead, MicroGemm
from tilec.ir.exprs import dtype_of, int_value, linear_in, substitute, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Block, Launch, Parallel, Stmt, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import (
    Access,
    accesses,
    long_vars,
    same_extent,
    tensor_writes,
    values_of,
)
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class AskForResults(LaunchPass):
    """In: Parallel loops over the columns of one row, one behind the other. Out: where a loop stores the row
    of a tensor that nothing in front of it in its block touches, and the loop before, over as many columns,
    computes mathematical functions, that one asks for the row, unless it reads a tensor for the first time
    itself. Launches with products ask for the lines of their results by other means."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops asking ahead."""
        if any(isinstance(stmt, MicroGemm) for stmt in walk(launch.body)):
            return launch
        names = values_of(walk(launch.body))
        return replace(launch, body=rewrite_blocks(launch.body, lambda block: _Rows(names).asking(block)))


@dataclass(eq=False)
class _Rows:
    """The statements of a block so far, the number of its last loop over columns, where that one may ask, and
    the tensors and tiles that it and those before it touch."""

    names: Mapping[Var, Expr]
    done: list[Stmt] = field(default_factory=list)
    idle: int | None = None
    known: set[Var] = field(default_factory=set)

    def asking(self, block: Block) -> Block:
        """``block``, whose loops ask for rows of results."""
        for stmt in block:
            if isinstance(stmt, Parallel) and len(long_vars(stmt)) == 1:
                self._take_row(stmt)
            self.known.update(item.buffer for item in accesses((stmt,)))
            self.done.append(stmt)
        return tuple(self.done)

    def _take_row(self, loop: Parallel) -> None:
        if self.idle is not None:
            self.done[self.idle] = self._asks(self.done[self.idle], loop)
        self.idle = len(self.done) if self._leaves_memory_idle(loop) else None

    def _leaves_memory_idle(self, loop: Parallel) -> bool:
        """Whether a loop computes much of what the caches have."""
        found = (item.buffer for item in accesses(loop.body))
        if any(buffer.scope() == "global" and buffer not in self.known for buffer in found):
            return False
        nodes = (node for stmt in walk(loop.body) for each in expressions(stmt) for node in walk_expr(each))
        return any(isinstance(node, Call) and is_expanded(node) for node in nodes)

    def _asks(self, before: Stmt, loop: Parallel) -> Stmt:
        """``before``, which asks for the new rows that ``loop`` stores where both have as many columns."""
        assert isinstance(before, Parallel)
        (column, count), (stored, wanted) = _columns(before), _columns(loop)
        if not same_extent(count, wanted):
            return before
        places = ((item.buffer, _moved(item.indices, {stored: column})) for item in self._new_rows(loop))
        asked = (AskAhead(buffer, place, place, write=True) for buffer, place in places)
        return replace(before, body=(*before.body, *asked))

    def _new_rows(self, loop: Parallel) -> Iterator[Access]:
        """The elements of tensors side by side that ``loop`` stores and nothing in front of it touches."""
        column, _ = _columns(loop)
        first = {var: tirx.const(0, dtype_of(var)) for var in loop.vars if not var.same_as(column)}
        for item in tensor_writes(loop.body, self.names):
            *outer, last = indices = _moved(item.indices, first)
            factors = linear_in(last, [column])
            if not factors or int_value(factors[0]) != 1 or any(uses(index, (column,)) for index in outer):
                continue
            if item.buffer not in self.known:
                yield replace(item, indices=indices)


def _columns(loop: Parallel) -> tuple[Var, int | Expr]:
    """The variable of a loop over one row, and how many columns there are."""
    (column,) = long_vars(loop)
    pairs = zip(loop.vars, loop.extents, strict=True)
    return next((var, count) for var, count in pairs if var.same_as(column))


def _moved(indices: tuple[Expr, ...], values: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    return tuple(substitute(index, dict(values)) for index in indices)
