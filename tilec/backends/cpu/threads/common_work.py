"""Loops that all threads of a block run alike: the block runs them once.

m = -inf; for j in serial(n): m = max(m, row[j])     (each thread, for itself)
->
the same, once for the block: threads read one m

On a GPU threads that do the same cost what one does; a CPU would do it for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import walk
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import expressions
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm.ir import Var

    from tilec.ir.analysis.threads.uniform import Uniformity

#: Trips of a loop that is worth a place of its own.
_LEAST = 8


def common_work(body: ir.Block, is_split: Callable[[ir.Stmt], bool], uniform: Uniformity) -> set[ir.Stmt]:
    """Loops that all threads run alike and that write nothing but variables of threads, which then hold the
    same in all of them, and whatever else writes these variables. ``is_split``: the block takes a statement
    apart, and may do each part of it."""
    stmts = list(_parts(body, is_split))
    able = {stmt: _made(stmt) for stmt in stmts if _is_alike(stmt, uniform)}
    chosen = {var for stmt, made in able.items() if _is_long(stmt) for var in made}
    while True:
        common = {stmt for stmt, made in able.items() if made and made <= chosen}
        others = {var for stmt in stmts if stmt not in common for var in _made(stmt)}
        if not others & chosen:
            return common
        chosen -= others


def alone(stmt: ir.Stmt) -> ir.Parallel:
    """A statement as a loop of one iteration."""
    return ir.Parallel((tirx.Var("once", "int32"),), (1,), (stmt,), loc=stmt.loc)


def _parts(body: ir.Block, is_split: Callable[[ir.Stmt], bool]) -> Iterator[ir.Stmt]:
    """The statements of a block, those that it takes apart as what is inside."""
    for stmt in body:
        if is_split(stmt) and ir.children(stmt):
            for block in ir.children(stmt):
                yield from _parts(block, is_split)
            continue
        yield stmt


def _made(stmt: ir.Stmt) -> set[Var]:
    """The storage that a statement writes or brings."""
    brought = {inner.buffer for inner in ir.walk((stmt,)) if isinstance(inner, ir.Alloc)}
    return brought | set(written_in((stmt,)))


def _is_long(stmt: ir.Stmt) -> bool:
    if not isinstance(stmt, ir.For):
        return False
    trips = known_trips(stmt)
    return trips is None or len(trips) >= _LEAST


def _is_alike(stmt: ir.Stmt, uniform: Uniformity) -> bool:
    """Whether a statement computes what no thread has to itself, from what no thread has to itself."""
    inside = list(ir.walk((stmt,)))
    parts = [expr for inner in inside for expr in expressions(inner)]
    return (
        is_scalar_code((stmt,))
        and all(var.scope() in PER_THREAD and var not in uniform.varying for var in _made(stmt))
        and not uniform.varies(*parts)
        and not any(is_foreign(node) for expr in parts for node in walk(expr))
    )
