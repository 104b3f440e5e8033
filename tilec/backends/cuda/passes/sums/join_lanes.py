"""Additions of a warp's lanes to one element are joined by shuffles: one lane adds.

    atomic_add(total[ty], value)    in blocks of (32, 8) threads
    ->
    value += shfl_xor(value, 16); ...; if tx % 32 == 0: atomic_add(total[ty], value)

Lanes that add to one element wait for each other: an addition of floats in shared memory is a loop until
nobody else has come between. H200, microseconds: squares of rows of 4096 by 256 threads that each add to one
sum 224 and 80, one row by a matrix of 8192 x 8192 whose 64 threads a column add to its element 43 and 34.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import dtype_of, inlined, linear_in
from tilec.ir.nodes import (
    Atomic,
    Bind,
    Block,
    If,
    Launch,
    Parallel,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import WARP, Lane, Return
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What shuffles move whole.
_TYPES = ("float32", "int32", "uint32")


class JoinLanes(LaunchPass):
    """In: launches that name their threads, and in them additions that all threads come to. Out: where lanes
    of a warp that differ in one bit of their number, or in several, add to the same element whatever else is
    so, their values are added by shuffles, and the lane adds in which these bits are 0."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its additions."""
        ends = any(isinstance(stmt, (Return, Group)) for stmt in walk(launch.body))
        if not launch.thread_vars or ends or thread_count(launch) % WARP:
            return launch
        return replace(launch, body=_Joining(launch).block(launch.body))


class _Joining:
    """Rewrites the blocks of a launch that all of its threads run."""

    def __init__(self, launch: Launch) -> None:
        self._uniform, self._names = Uniformity(launch), values_of(launch.body)
        self._grid = ThreadGrid.of(launch)

    def block(self, block: Block) -> Block:
        """A block with its additions joined."""
        return tuple(made for stmt in block for made in self._stmts(stmt))

    def _stmts(self, stmt: Stmt) -> Block:
        if isinstance(stmt, Atomic):
            return self._joined(stmt)
        if isinstance(stmt, Parallel) or self._uniform.parts(stmt):
            return (stmt,)
        return (with_children(stmt, [self.block(inner) for inner in children(stmt)]),)

    def _joined(self, stmt: Atomic) -> Block:
        plain = (stmt.kind, stmt.prev, stmt.order) == ("add", None, "relaxed")
        bits = self._shared_bits(stmt) if plain and dtype_of(stmt.value) in _TYPES else ()
        if not bits:
            return (stmt,)
        dtype, name = dtype_of(stmt.value), f"{stmt.buffer.name}_joined"
        own = tirx.Var(name, dtype)
        made: list[Stmt] = [Bind(own, stmt.value, loc=stmt.loc)]
        for bit in reversed(bits):
            other, both = tirx.Var(f"{name}_other", dtype), tirx.Var(name, dtype)
            made.append(Lane("shfl_xor", other, (own, tirx.const(bit, "int32")), loc=stmt.loc))
            made.append(Bind(both, own + other, loc=stmt.loc))
            own = both
        others = tirx.bitwise_and(self._grid.number, tirx.const(sum(bits), "int32"))
        first = tirx.EQ(others, tirx.const(0, "int32"))
        return (*made, If(first, (replace(stmt, value=own),), loc=stmt.loc))

    def _shared_bits(self, stmt: Atomic) -> tuple[int, ...]:
        """The bits of a lane's number that have no part in which element it adds to."""
        found = [self._by_thread(inlined(index, self._names)) for index in stmt.indices]
        places = [place for place in found if place is not None]
        if len(places) < len(found):
            return ()
        threads = np.arange(self._grid.count)
        bits = (1 << number for number in range(WARP.bit_length() - 1))
        return tuple(bit for bit in bits if all((place == place[threads ^ bit]).all() for place in places))

    def _by_thread(self, index: Expr) -> np.ndarray | None:
        """What threads differ by in an index, by the number of a thread; None where that hangs on what is
        known at run time alone."""
        *steps, rest = linear_in(index, list(self._grid.vars)) or [index]
        if steps:
            if self._uniform.varies(rest):
                return None
            parts = [var * step for var, step in zip(self._grid.vars, steps, strict=True)]
            index = reduce(add, parts)
        values = self._grid.values(index)
        return None if values is None else values[:, 0]
