"""What passes over the AttentionRoles statement of each launch share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.attention.nodes import AttentionRoles
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Kernel, Launch, Stmt, walk
from tilec.ir.traits import buffers, defined, written
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


class AttentionPass(Pass):
    """A pass over the roles of every launch of the strategy."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with these roles rewritten."""
        return rewrite_roles(
            kernel, AttentionRoles, lambda launch, roles: with_roles(launch, self.roles(roles, launch))
        )

    @abstractmethod
    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The rewritten roles of a launch."""


def producer_facts(kernel: Kernel, launch: Launch, producer: Block) -> Facts:
    """What is known inside a launch's body where its producer begins its loop."""
    scope = ScopedRewrite(kernel, launch)
    for stmt in producer:
        if isinstance(stmt, Bind):
            scope.stmt(stmt)
    return scope.facts


def with_loops(block: Block, rewritten: Callable[[For], Block]) -> Block:
    """A block with what takes the place of its serial loops, those of branches, too."""
    made: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, If):
            then, orelse = (with_loops(side, rewritten) for side in (stmt.then, stmt.orelse))
            stmt = replace(stmt, then=then, orelse=orelse)
        made += rewritten(stmt) if isinstance(stmt, For) else (stmt,)
    return tuple(made)


def touched(stmt: Stmt) -> tuple[set[Var], set[Var]]:
    """The buffers that a statement reads or writes, and those among them that it writes."""
    inside = list(walk((stmt,)))
    return {b for s in inside for b in buffers(s)}, {b for s in inside for b in written(s)}


def copied(block: Block, values: Mapping[Var, Expr]) -> Block:
    """``block`` with variables replaced, and new variables for all that it defines; buffers stay."""
    names = [var for stmt in walk(block) if not isinstance(stmt, Alloc) for var in defined(stmt)]
    fresh = {var: tirx.Var(var.name, dtype_of(var)) for var in names}
    return renamed(block, {**values, **fresh})
