"""An iteration that reads what it has just stored has it from a register.

s[i, j] = x * 2; f[i, j] = s[i, j] + 1    ->    v = x * 2; s[i, j] = v; f[i, j] = v + 1

Where threads hold copies of an iteration one of them stores, and the others would read before that is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import loads, same_all, transform
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.uses import overlapping
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.passes.expand_copies import cast_to
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr


class ForwardStores(LaunchPass):
    """In: Parallel loops. Out: in those of names, stores and branches alone, no statement reads an element of
    shared or global memory that one of its block in front of it has stored in the same iteration."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with what its loops store handed on."""
        forward = _Forward(overlapping(launch))
        return replace(launch, body=rewrite_blocks(launch.body, forward.loops))


class _Forward:
    """The loops of one launch."""

    def __init__(self, overlapping: frozenset[Var]) -> None:
        self._overlapping = overlapping

    def loops(self, block: Block) -> list[Stmt]:
        """A block with what its loops store handed on."""
        return [self._loop(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]

    def _loop(self, loop: Parallel) -> Parallel:
        plain = all(isinstance(stmt, (Alloc, Bind, If, Store)) for stmt in walk(loop.body))
        return replace(loop, body=self._forwarded(loop.body)) if plain else loop

    def _forwarded(self, body: Block) -> Block:
        made: list[Stmt] = []
        rest = list(body)
        while rest:
            stmt, *rest = rest
            if isinstance(stmt, Store) and _is_read_again(stmt, rest):
                name = tirx.Var(f"{stmt.buffer.name}_stored", str(stmt.buffer.dtype))
                made.append(Bind(name, cast_to(stmt.value, str(stmt.buffer.dtype)), loc=stmt.loc))
                rest = self._with_name(rest, stmt, name)
                stmt = replace(stmt, value=name)
            made.append(with_children(stmt, [self._forwarded(inner) for inner in children(stmt)]))
        return tuple(made)

    def _with_name(self, stmts: list[Stmt], store: Store, name: Var) -> list[Stmt]:
        """Statements that read ``name`` for what is stored, up to the one that may store something else there
        or change where that is, or a branch that may."""

        def read(node: Expr) -> Expr | None:
            is_read = isinstance(node, TensorLoad) and _names(node.source, tuple(node.indices), store)
            return name if is_read else None

        until = {store.buffer, *(load.source for index in store.indices for load in loads(index))}
        if until & self._overlapping:
            until |= self._overlapping
        made: list[Stmt] = []
        for position, stmt in enumerate(stmts):
            ends = any(item.is_write and item.buffer in until for item in accesses((stmt,)))
            if ends and not isinstance(stmt, Store):
                return [*made, *stmts[position:]]
            made.append(map_stmt(stmt, lambda expr: transform(expr, read)))
            if ends:
                return [*made, *stmts[position + 1 :]]
        return made


def _is_read_again(store: Store, later: list[Stmt]) -> bool:
    memory = store.buffer.scope() not in (*PER_THREAD, "local.fragment")
    read = (item for item in accesses(tuple(later)) if not item.is_write)
    return memory and any(_names(item.buffer, item.indices, store) for item in read)


def _names(buffer: Var, indices: tuple[Expr, ...], store: Store) -> bool:
    return buffer.same_as(store.buffer) and same_all(indices, store.indices)
