"""Sums of a loop that add several terms one after the other, as sums that add one.

s = s + a; s = s + b -> s = s + (a + b)

Weights of few bits are two terms of a byte; lanes add up what is one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import loads, same_all
from tilec.ir.nodes import Bind, For, Store, children, with_children
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accumulations import accumulation

if TYPE_CHECKING:
    from tilec.ir.nodes import Block, Stmt
    from tilec.lowering.analysis.accumulations import Accumulation


def with_joined_sums(block: Block) -> Block:
    """A block whose loops add what follows in one place to a variable of a thread at once."""
    return tuple(_inside(stmt) for stmt in block)


def _inside(stmt: Stmt) -> Stmt:
    blocks = [with_joined_sums(inner) for inner in children(stmt)]
    if isinstance(stmt, For):
        blocks = [_joined(inner) for inner in blocks]
    return with_children(stmt, blocks) if blocks else stmt


def _joined(body: Block) -> Block:
    """A loop's body, each sum where its last term is known, behind the names that this needs."""
    done: list[Stmt] = []
    for stmt in body:
        names = list(takewhile(lambda made: isinstance(made, Bind), reversed(done)))
        before = done[-len(names) - 1] if len(done) > len(names) else None
        found = _sum_of(before, names, stmt)
        if found is not None:
            del done[-len(names) - 1]
        done.append(stmt if found is None else found)
    return tuple(done)


def _sum_of(first: Stmt | None, names: Sequence[Stmt], second: Stmt) -> Store | None:
    """Two stores that add to one element as one; None where they are no such stores, or the second term or
    a name between them reads it."""
    a, b = _term(first), _term(second)
    if a is None or b is None or not same_all(a.store.indices, b.store.indices):
        return None
    buffer = a.store.buffer
    between = [expr for name in names for expr in expressions(name)]
    read = [load.source for expr in between for load in loads(expr)]
    if not buffer.same_as(b.store.buffer) or any(source.same_as(buffer) for source in read):
        return None
    kept = b.store.value
    old = kept.b if kept.a.same_as(b.term) else kept.a
    return replace(b.store, value=tirx.Add(old, tirx.Add(a.term, b.term)))


def _term(stmt: Stmt | None) -> Accumulation | None:
    """A store that adds to a variable of a thread in its own type."""
    if not isinstance(stmt, Store) or stmt.buffer.scope() not in PER_THREAD:
        return None
    found = accumulation(stmt)
    return found if found is not None and found.kind == "sum" and isinstance(stmt.value, tirx.Add) else None
