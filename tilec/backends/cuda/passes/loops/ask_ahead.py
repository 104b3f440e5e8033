"""Elementwise loops ask for all elements of a thread before the first one is waited for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.loops import long_variables, loop_extents
from tilec.backends.cuda.analysis.layouts.read_tiles import read_tile
from tilec.ir.exprs import choice_of, each_once, loads, same, transform, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Bind, Block, Launch, Parallel, Stmt, Store
from tilec.ir.traits import expressions
from tilec.lowering.analysis.uses import changed_in, order_counts
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Bytes of a thread's registers for what it asks for ahead.
_ROOM = 128


class AskAhead(LaunchPass):
    """In: Parallel loops from tensors to tensors, of several vectors a thread. Out: loops that read these
    elements into fragments, then the loop over those: a store, or a test of bounds, keeps the loads behind
    it from starting. Loops whose elements differ in size, and those that look elements up, stay as they
    are."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops split."""
        if launch.thread_vars or order_counts(launch):
            return launch
        changed, threads = changed_in(launch), thread_count(launch)

        def block(body: Block) -> list[Stmt]:
            return [new for stmt in body for new in _asked(stmt, changed, threads)]

        return replace(launch, body=rewrite_blocks(launch.body, block))


def _asked(stmt: Stmt, changed: set[Var], threads: int) -> list[Stmt]:
    """A loop behind those that read for it; any other statement as it is."""
    if not isinstance(stmt, Parallel) or stmt.hints.given or not _is_plain(stmt):
        return [stmt]
    found = _reads(stmt)
    size = sum(element_bytes(str(load.source.dtype)) for load in found)
    each = math.prod(loop_extents(stmt)) // threads
    several = found and each * element_bytes(str(found[0].source.dtype)) > WIDEST
    if not several or each * size > _ROOM or any(not _is_own(load, stmt, changed) for load in found):
        return [stmt]
    made = [read_tile(load, stmt, stmt.vars, "ahead") for load in found]
    tiles = [alloc.buffer for alloc, _ in made]
    return [*(part for pair in made for part in pair), _over(stmt, found, tiles)]


def _is_plain(loop: Parallel) -> bool:
    """Whether a loop does nothing but move elements of one size from tensors to tensors, all of them."""
    if not all(isinstance(stmt, (Bind, Store)) for stmt in loop.body):
        return False
    stored = [stmt.buffer for stmt in loop.body if isinstance(stmt, Store)]
    buffers = [*stored, *(load.source for load in _all_loads(loop))]
    chosen = any(choice_of(node) for value in _values(loop) for node in walk_expr(value))
    sizes = {element_bytes(str(buffer.dtype)) for buffer in buffers}
    return not chosen and len(sizes) == 1 and all(buffer.scope() == "global" for buffer in buffers)


def _values(loop: Parallel) -> Iterator[Expr]:
    return (value for stmt in loop.body for value in expressions(stmt))


def _all_loads(loop: Parallel) -> Iterator[TensorLoad]:
    return (load for value in _values(loop) for load in loads(value))


def _reads(loop: Parallel) -> list[TensorLoad]:
    """What a loop reads, each element once."""
    return each_once(_all_loads(loop))


def _is_own(load: TensorLoad, loop: Parallel, changed: set[Var]) -> bool:
    """Whether each iteration reads an element that no other one reads, at a place that the loop's variables
    tell, and that nothing writes."""
    names = {stmt.var for stmt in loop.body if isinstance(stmt, Bind)}
    looked_up = any(next(loads(index), None) is not None for index in load.indices)
    named = any(uses(index, names) for index in load.indices)
    own = all(any(uses(index, (var,)) for index in load.indices) for var in long_variables(loop))
    return own and not looked_up and not named and load.source not in changed


def _over(loop: Parallel, found: list[TensorLoad], tiles: list[Var]) -> Parallel:
    """The loop over what was read."""

    def read(node: Expr) -> Expr | None:
        for load, tile in zip(found, tiles, strict=True):
            if isinstance(node, TensorLoad) and same(node, load):
                return tirx.BufferLoad(tile, list(loop.vars))
        return None

    def stmt_of(stmt: Stmt) -> Stmt:
        assert isinstance(stmt, (Bind, Store))
        return replace(stmt, value=transform(stmt.value, read))

    return replace(loop, body=tuple(map(stmt_of, loop.body)))
