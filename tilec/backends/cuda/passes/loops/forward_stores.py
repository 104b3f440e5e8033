"""An iteration that reads what it has just stored has it from a register.

s[i, j] = x * 2; f[i, j] = s[i, j] + 1    ->    v = x * 2; s[i, j] = v; f[i, j] = v + 1

Where threads hold copies of an iteration one of them stores, and the others would read before that is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.exprs import all_of, cast_to, loads, same_all, transform, uncast
from tilec.ir.nodes import Alloc, Bind, Block, If, Kernel, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import addressed_in, overlapping
from tilec.lowering.emission.access import bounds_to_test
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: What a loop may consist of.
_PLAIN = (Alloc, Bind, If, Store)


class ForwardStores(Pass):
    """In: Parallel loops. Out: in those of names, stores and branches alone, no statement reads an element
    that one of its block in front of it has stored in the same iteration, in shared or global memory, or in a
    fragment at another place than the iteration's own. Where such an element may lie outside of its buffer a
    test says whether it was kept."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with what its loops store handed on."""
        return rewrite_launches(kernel, lambda launch: _Forward(kernel, launch).run())


class _Forward(ScopedRewrite):
    """The loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self._overlapping = overlapping(launch)
        self._addressed = addressed_in(launch.body)
        self._vars: tuple[Var, ...] = ()

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop with what it stores handed on."""
        if not isinstance(stmt, Parallel) or not all(isinstance(each, _PLAIN) for each in walk(stmt.body)):
            return super().stmt(stmt)
        self._learn(stmt)
        self._vars = stmt.vars
        return [replace(stmt, body=self._forwarded(stmt.body))]

    def _forwarded(self, body: Block) -> Block:
        made: list[Stmt] = []
        rest = list(body)
        while rest:
            stmt, *rest = rest
            self._learn(stmt)
            if isinstance(stmt, Store) and self._may_leave(stmt) and _is_read_again(stmt, rest):
                names, stmt = self._named(stmt)
                made += names
                rest = self._with_name(rest, stmt, names[-1].var) if names else rest
            made.append(self._inside(stmt))
        return tuple(made)

    def _may_leave(self, store: Store) -> bool:
        """Whether a store goes to memory whose address no foreign code gets, or to a fragment's element that
        another thread may hold: such ones wait in shared memory."""
        if store.buffer in self._addressed:
            return False
        own = (any(uncast(index).same_as(var) for var in self._vars) for index in store.indices)
        scope = store.buffer.scope()
        return scope not in PER_THREAD and (scope != "local.fragment" or not all(own))

    def _inside(self, stmt: Stmt) -> Stmt:
        """A statement whose blocks have what they store handed on."""
        if not isinstance(stmt, If):
            return stmt
        with self.facts.remember(stmt.cond):
            then = self._forwarded(stmt.then)
        with self.facts.remember(stmt.cond, value=False):
            return replace(stmt, then=then, orelse=self._forwarded(stmt.orelse))

    def _named(self, store: Store) -> tuple[list[Bind], Store]:
        """A store of a name, and its names, the last of which is what a read finds there; no name where that
        is nothing."""
        buffer, loc = store.buffer, store.loc
        conds = bounds_to_test(store.indices, buffer.shape, self.facts)
        if conds is None:
            return [], store
        dtype = str(buffer.dtype)
        name = tirx.Var(f"{buffer.name}_stored", dtype)
        names = [Bind(name, cast_to(store.value, dtype), loc=loc)]
        if conds:
            found = tirx.if_then_else(all_of(conds), name, tirx.const(0, dtype))
            names.append(Bind(tirx.Var(f"{buffer.name}_kept", dtype), found, loc=loc))
        return names, replace(store, value=name)

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
    read = (item for item in accesses(tuple(later)) if not item.is_write)
    return any(_names(item.buffer, item.indices, store) for item in read)


def _names(buffer: Var, indices: tuple[Expr, ...], store: Store) -> bool:
    return buffer.same_as(store.buffer) and same_all(indices, store.indices)
