"""Tests that every call passes are left out: of a ragged tile of rows and whole tiles of columns, that of
the columns.

    if r0 + i < rows and bx * 64 + j < 768: store    ->    if r0 + i < rows: store        (bx < 12, j < 64)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.ir.exprs import all_of, conjuncts
from tilec.ir.nodes import For, If, Kernel, Parallel, Pipelined, Stmt, children
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target

_AROUND = (For, If, Parallel, Pipelined)


class DropProvenTests(Pass):
    """In: any statements. Out: no branch asks what the ranges of block and loop variables and the guards of
    dims say already, whichever way; branches and loops that are left with nothing to do go, too."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with the tests that are left."""
        return rewrite_launches(kernel, lambda launch: Proven(kernel, launch).run())


class Proven(ScopedRewrite):
    """Rewrites the branches of one launch."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """What is left to do of a statement."""
        left = self._left(stmt)
        return [each for each in left if any(children(each)) or not isinstance(each, _AROUND)]

    def _left(self, stmt: Stmt) -> list[Stmt]:
        """A branch with the tests that may fail, or the side that is always taken."""
        if not isinstance(stmt, If):
            return super().stmt(stmt)
        tests = {test: self.facts.prove(test) for test in conjuncts(stmt.cond)}
        if False in tests.values():
            return list(self.block(stmt.orelse))
        left = [test for test, verdict in tests.items() if verdict is None]
        if not left:
            return list(self.block(stmt.then))
        return super().stmt(stmt if len(left) == len(tests) else replace(stmt, cond=all_of(left)))
