"""What a loop over a product's sums makes of shared tiles alone is made beside the product.

    S = Q K^T; wait(S); S[i, j] = S[i, j] * scale + float(bias[i, j])
    ->    S = Q K^T; early[i, j] = float(bias[i, j]); wait(S); S[i, j] = S[i, j] * scale + early[i, j]

The product takes longer than that, and all that stands behind it waits. It takes registers for the elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.attention.assign.registers import most_words, words
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, Turn
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, touched
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import dtype_of, loads, operands, substitute, transform, uses
from tilec.ir.nodes import Alloc, Block, Launch, Stmt, Store
from tilec.ir.traits import defined
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class ReadBeside(AttentionPass):
    """In: AttentionRoles whose consumers have thread loops behind products. Out: what such a loop reads of
    shared tiles comes to a fragment behind the issue of the products in front, where registers hold it."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with early reads."""
        if roles.alone:
            return roles
        held = [stmt.buffer for stmt in roles.consumer if isinstance(stmt, Alloc)]
        groups = roles.roles.consumers
        left = most_words(roles.roles.registers, roles.together) - sum(words(each, groups) for each in held)
        early = _Early(left, groups)
        consumer = rewrite_blocks(roles.consumer, early.block)
        return replace(roles, consumer=(*early.allocs, *consumer))


class _Early:
    """Moves reads in front of waits. ``left``: registers of a thread for what they bring."""

    def __init__(self, left: int, warpgroups: int) -> None:
        self._left, self._warpgroups = left, warpgroups
        self.allocs: list[Alloc] = []

    def block(self, block: Block) -> list[Stmt]:
        """A block whose loops find what they read of shared tiles."""
        made: list[Stmt] = []
        for stmt in block:
            at = behind_products(made)
            parts = _Parts(stmt, made[at:]) if at and isinstance(stmt, ThreadLoop) else None
            fragment = None if parts is None else self._fragment(parts, made[at:])
            if parts is not None and fragment is not None:
                made.insert(at, parts.early(fragment))
                stmt = parts.late(fragment)
            made.append(stmt)
        return made

    def _fragment(self, parts: _Parts, between: list[Stmt]) -> Var | None:
        """The fragment of a trip's elements, the same one for trips of all loops; None where there are none,
        or registers do not hold it."""
        if parts.found is None:
            return None
        loop, dtype = parts.loop, dtype_of(parts.found)
        taken = {buffer for stmt in between for buffer in touched(stmt)[1]}
        for known in self.allocs:
            if known.layout == loop.layout and str(known.buffer.dtype) == dtype and known.buffer not in taken:
                return known.buffer
        fragment = tirx.decl_buffer(loop.extents, dtype, name="early", scope="local.fragment")
        if words(fragment, self._warpgroups) > self._left:
            return None
        self._left -= words(fragment, self._warpgroups)
        self.allocs.append(Alloc(fragment, layout=loop.layout))
        return fragment


def behind_products(made: list[Stmt]) -> int:
    """The position behind the last products that are issued; 0 where there are none."""
    return next((i + 1 for i in reversed(range(len(made))) if isinstance(made[i], (AsyncProduct, Turn))), 0)


class _Parts:
    """A loop that stores one element each, and the part of it (``found``) that is made of shared tiles."""

    def __init__(self, loop: ThreadLoop, between: list[Stmt]) -> None:
        self.loop = loop
        self._late = {var for stmt in between for var in defined(stmt)}
        store = loop.body[-1]
        self.found: Expr | None = None
        if len(loop.body) == 1 and isinstance(store, Store) and len(loop.vars) == 2:
            self._store = store
            self.found = self._part(store.value)

    def _part(self, node: Expr) -> Expr | None:
        """The first of the largest parts that depend on shared tiles and on no fragment."""
        scopes = {str(load.source.scope()) for load in loads(node)}
        if "shared.dyn" not in scopes:
            return None
        if scopes == {"shared.dyn"} and not uses(node, self._late):
            return node
        return next((found for each in operands(node) if (found := self._part(each)) is not None), None)

    def early(self, fragment: Var) -> ThreadLoop:
        """The loop that makes the part."""
        assert self.found is not None
        own = tuple(tirx.Var(str(var.name), dtype_of(var)) for var in self.loop.vars)
        value = substitute(self.found, dict(zip(self.loop.vars, own, strict=True)))
        return replace(self.loop, vars=own, body=(Store(fragment, own, value),))

    def late(self, fragment: Var) -> ThreadLoop:
        """The loop without it."""
        taken = tirx.BufferLoad(fragment, list(self.loop.vars))

        def visit(node: Expr) -> Expr | None:
            return taken if node.same_as(self.found) else None

        store = replace(self._store, value=transform(self._store.value, visit))
        return replace(self.loop, body=(store,))
