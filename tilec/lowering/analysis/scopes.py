"""Walking a launch with what is known at each place: a base for passes that prove things."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    Assume,
    Bind,
    Block,
    For,
    If,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    children,
    with_children,
)
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.uses import changed_in

if TYPE_CHECKING:
    from tvm.ir import Expr


class ScopedRewrite:
    """Rewrites a launch top down; ``facts`` knows the ranges of the variables in scope, and the conditions
    that hold there."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        self.launch = launch
        self.facts = Facts(kernel, changed_in(launch))
        for stmt in kernel.body:
            if isinstance(stmt, Bind):
                self.facts.learn_binding(stmt.var, stmt.value)
        for var, extent in zip(launch.block_vars, launch.grid, strict=True):
            self.facts.bind_range(var, 0, extent)

    def run(self) -> Launch:
        """The rewritten launch."""
        return self.launch_with(self.block(self.launch.body))

    def launch_with(self, body: Block) -> Launch:
        """The launch with another body."""
        return replace(self.launch, body=body)

    def block(self, block: Block) -> Block:
        """The rewritten block; what it assumes holds to its end."""
        made: list[Stmt] = []
        with ExitStack() as known:
            for stmt in block:
                if isinstance(stmt, Assume):
                    known.enter_context(self.facts.remember(stmt.cond))
                made += self.stmt(stmt)
        return tuple(made)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """What a statement becomes; by default itself over rewritten blocks."""
        if isinstance(stmt, If):
            return [self.branch(stmt)]
        self._learn(stmt)
        inner = children(stmt)
        return [with_children(stmt, [self.block(block) for block in inner]) if inner else stmt]

    def branch(self, stmt: If) -> If:
        """A branch over rewritten blocks, each of which knows how the condition came out."""
        with self.facts.remember(stmt.cond):
            then = self.block(stmt.then)
        with self.facts.remember(stmt.cond, False):
            return replace(stmt, then=then, orelse=self.block(stmt.orelse))

    def _learn(self, stmt: Stmt) -> None:
        if isinstance(stmt, Bind):
            self.facts.learn_binding(stmt.var, stmt.value)
        elif isinstance(stmt, Pipelined) or (isinstance(stmt, For) and (int_value(stmt.step) or 0) > 0):
            self.facts.bind_range(stmt.var, stmt.start, stmt.stop)
        elif isinstance(stmt, Parallel):
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                self.facts.bind_range(var, 0, extent)


def conditioned(body: Block) -> tuple[Expr | None, Block]:
    """The condition under which all of an elementwise loop's body stands, and what stands under it."""
    only = body[0] if len(body) == 1 else None
    if isinstance(only, If) and not only.orelse:
        return only.cond, only.then
    return None, body
