"""Values of threads that a statement of the block reads have to be the same in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad, Var

from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import walk
from tilec.ir.nodes.threads import PER_THREAD, Lane, ThreadReduce
from tilec.ir.places import place_of
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from tvm.ir import Expr


def refuse_differing(launch: ir.Launch) -> None:
    """Raises UnsupportedError for a statement of the block that reads what is another value in every thread.

    Threads that have exchanged values may agree on what they made of them."""
    differing = Uniformity(launch, control=False).varying - _exchanged(launch.body)
    for stmt in _of_block(launch.body):
        found = next((var for var in _read(stmt) if var in differing), None)
        if found is not None:
            raise UnsupportedError(
                f"a tile statement reads {found.name}, which differs between threads",
                place=place_of(stmt),
                why="the statement is one of the whole block: which thread carries out a part is open",
                remedy="write the values to T.alloc_shared first, or loop in each thread with T.serial",
            )


def _of_block(body: ir.Block) -> Iterator[ir.Stmt]:
    """The statements that threads carry out together."""
    for stmt in body:
        if isinstance(stmt, ir.COLLECTIVE):
            yield stmt
        else:
            for block in ir.children(stmt):
                yield from _of_block(block)


def _read(stmt: ir.Stmt) -> Iterator[Var]:
    """Names and storage that a statement reads, with the statements inside it."""
    for inner in ir.walk((stmt,)):
        for expr in expressions(inner):
            yield from _names(expr)


def _names(expr: Expr) -> Iterator[Var]:
    for node in walk(expr):
        if isinstance(node, TensorLoad):
            yield node.source
        elif isinstance(node, Var):
            yield node


def _exchanged(body: ir.Block) -> set[Var]:
    """Names and storage of threads whose values come from an exchange, by way of others too."""
    found: set[Var] = set()
    count = -1
    while count != len(found):
        count = len(found)
        for stmt in ir.walk(body):
            if isinstance(stmt, Lane):
                found.add(stmt.var)
            elif isinstance(stmt, ThreadReduce):
                found.add(stmt.buffer)
            elif isinstance(stmt, ir.Bind) and any(name in found for name in _names(stmt.value)):
                found.add(stmt.var)
            elif isinstance(stmt, ir.Store) and stmt.buffer.scope() in PER_THREAD:
                found |= {stmt.buffer} if any(name in found for name in _names(stmt.value)) else set()
    return found
