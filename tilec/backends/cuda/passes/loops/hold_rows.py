"""A row that several rows of a loop read under a condition is read once, into registers.

for i, j in parallel(64, 128): if i >= first: S[i, j] += X[i - first, j] * W[j]
->
for j in parallel(128): W_row[j] = W[j]
for i, j in parallel(64, 128): if i >= first: S[i, j] += X[i - first, j] * W_row[j]

Compilers do not read what a condition may leave unread, so that a thread read the row again for each row that
it has: 128 numbers in a depthwise convolution of four taps where 32 do, 1105 and 348 us on an H100.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.loops import long_variables, loop_extents
from tilec.backends.cuda.analysis.layouts.read_tiles import read_tile
from tilec.ir.exprs import (
    choice_of,
    each_once,
    inlined,
    loads,
    reads,
    same,
    transform,
    uses,
)
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Block, If, Launch, Parallel, Stmt, walk
from tilec.ir.traits import defined, expressions, loads_of
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.analysis.uses import changed_in, order_counts
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Bytes of a thread's registers for the rows of a loop.
_ROOM = 256


class HoldRows(LaunchPass):
    """In: Parallel loops of several rows a thread that read a row of a tensor, which nothing writes, under a
    condition. Out: loops that read these rows into fragments in front of them."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its rows read once."""
        if launch.thread_vars or order_counts(launch):
            return launch
        changed, threads = changed_in(launch), thread_count(launch)

        def block(body: Block) -> list[Stmt]:
            return [new for stmt in body for new in _held(stmt, changed, threads)]

        return replace(launch, body=rewrite_blocks(launch.body, block))


def _held(stmt: Stmt, changed: Set[Var], threads: int) -> list[Stmt]:
    """A loop behind those that read its rows; any other statement as it is."""
    if not isinstance(stmt, Parallel) or stmt.hints.given or len(long_variables(stmt)) < 2:
        return [stmt]
    rows = _Rows(stmt, changed)
    if not rows.found or not rows.fit(threads):
        return [stmt]
    return rows.loops()


class _Rows:
    """The rows that a loop reads."""

    def __init__(self, loop: Parallel, changed: Set[Var]) -> None:
        self.loop, self._long, self._changed = loop, long_variables(loop), changed
        self._values = values_of(walk(loop.body))
        self._own = {var for stmt in walk(loop.body) for var in defined(stmt)}
        found = each_once(self._spelled(load) for load in _under_conditions(loop.body))
        self.found = [load for load in found if self._is_row(load)]

    def fit(self, threads: int) -> bool:
        """Whether a thread has several rows of the loop, and registers for what it reads of each."""
        each = math.prod(loop_extents(self.loop)) // threads
        width = WIDEST // min(element_bytes(str(item.buffer.dtype)) for item in accesses(self.loop.body))
        shares = [max(width, math.prod(self._extents(load)) // threads) for load in self.found]
        sizes = (element_bytes(str(load.source.dtype)) for load in self.found)
        room = sum(share * size for share, size in zip(shares, sizes, strict=True))
        return each >= 2 * max(shares) and room <= _ROOM

    def loops(self) -> list[Stmt]:
        """The loops that read the rows, and the loop over these."""
        made = [read_tile(load, self.loop, self._variables(load), "row") for load in self.found]
        tiles = [alloc.buffer for alloc, _ in made]

        def read(node: Expr) -> Expr | None:
            if not isinstance(node, TensorLoad):
                return None
            spelled = self._spelled(node)
            for load, tile in zip(self.found, tiles, strict=True):
                if same(spelled, load):
                    return tirx.BufferLoad(tile, self._variables(load))
            return None

        loop = map_stmt(self.loop, lambda expr: transform(expr, read))
        return [*(part for pair in made for part in pair), loop]

    def _spelled(self, load: TensorLoad) -> TensorLoad:
        """A read without names of the loop."""
        indices = [inlined(index, self._values) for index in load.indices]
        return tirx.BufferLoad(load.source, indices)

    def _is_row(self, load: TensorLoad) -> bool:
        """Whether a read is the same for several rows of the loop, at a place that its variables tell, of
        what nothing writes."""
        variables = self._variables(load)
        is_row = any(var.same_as(self._long[-1]) for var in variables) and len(variables) < len(self._long)
        named = any(
            uses(index, self._own) or reads(index, self._changed | self._own) for index in load.indices
        )
        is_memory = load.source.scope() == "global" and load.source not in self._changed
        return is_row and is_memory and not named

    def _variables(self, load: TensorLoad) -> list[Var]:
        """The variables of the loop, of several values, that tell the place of a read."""
        return [var for var in self._long if any(uses(index, (var,)) for index in load.indices)]

    def _extents(self, load: TensorLoad) -> list[int]:
        extents = dict(zip(self.loop.vars, loop_extents(self.loop), strict=True))
        return [extents[var] for var in self._variables(load)]


def _under_conditions(body: Block) -> Iterator[TensorLoad]:
    """What a loop reads under a condition: in a branch, or in one of the values of a choice."""
    for stmt in walk(body):
        inner = walk((*stmt.then, *stmt.orelse)) if isinstance(stmt, If) else ()
        yield from loads_of(*inner)
        choices = (choice_of(node) for value in expressions(stmt) for node in walk_expr(value))
        sides = (side for choice in choices if choice is not None for side in choice[1:])
        yield from (load for side in sides for load in loads(side))
