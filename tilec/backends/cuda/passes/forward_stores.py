"""An iteration that reads what it has just stored has it from a register.

s[i, j] = x * 2; f[i, j] = s[i, j] + 1    ->    v = x * 2; s[i, j] = v; f[i, j] = v + 1

Where threads hold copies of an iteration one of them stores, and the others would read before that is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import same_all, transform
from tilec.ir.nodes import Alloc, Bind, Block, Parallel, Stmt, Store
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.passes.expand_copies import cast_to
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr


class ForwardStores(BlockPass):
    """In: Parallel loops. Out: in those of names and stores alone, no statement reads an element of shared or
    global memory that one in front of it has stored in the same iteration."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with what its loops store handed on."""
        return [_loop(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _loop(loop: Parallel) -> Parallel:
    plain = all(isinstance(stmt, (Alloc, Bind, Store)) for stmt in loop.body)
    return replace(loop, body=_forwarded(loop.body)) if plain and len(loop.body) > 1 else loop


def _forwarded(body: Block) -> Block:
    made: list[Stmt] = []
    rest = list(body)
    while rest:
        stmt, *rest = rest
        if isinstance(stmt, Store) and _is_read_again(stmt, rest):
            name = tirx.Var(f"{stmt.buffer.name}_stored", str(stmt.buffer.dtype))
            made.append(Bind(name, cast_to(stmt.value, str(stmt.buffer.dtype)), loc=stmt.loc))
            rest = _with_name(rest, stmt, name)
            stmt = replace(stmt, value=name)
        made.append(stmt)
    return tuple(made)


def _is_read_again(store: Store, later: list[Stmt]) -> bool:
    memory = store.buffer.scope() not in (*PER_THREAD, "local.fragment")
    read = (item for item in accesses(tuple(later)) if not item.is_write)
    return memory and any(_names(item.buffer, item.indices, store) for item in read)


def _names(buffer: Var, indices: tuple[Expr, ...], store: Store) -> bool:
    return buffer.same_as(store.buffer) and same_all(indices, store.indices)


def _with_name(stmts: list[Stmt], store: Store, name: Var) -> list[Stmt]:
    """Statements that read ``name`` for what is stored, up to the one that may store something else there."""

    def read(node: Expr) -> Expr | None:
        is_read = isinstance(node, TensorLoad) and _names(node.source, tuple(node.indices), store)
        return name if is_read else None

    made: list[Stmt] = []
    for position, stmt in enumerate(stmts):
        made.append(map_stmt(stmt, lambda expr: transform(expr, read)))
        if isinstance(stmt, Store) and stmt.buffer.same_as(store.buffer):
            return [*made, *stmts[position + 1 :]]
    return made
