"""Which statements of a launch its block has to take apart, because threads meet inside of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir import nodes as ir
from tilec.ir.nodes.threads import Lane, Sync, ThreadReduce
from tilec.lowering.analysis.thread_hazards import sides

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.analysis.threads.uniform import Uniformity
    from tilec.lowering.analysis.thread_hazards import Hazards

MEETINGS = (Sync, Lane, ThreadReduce, *ir.COLLECTIVE)


class Meetings:
    """The statements in which threads meet, and those around them: barriers, exchanges, tile operations, and
    what threads touch of each other's in shared memory."""

    def __init__(self, body: ir.Block, uniform: Uniformity, hazards: Hazards) -> None:
        self._uniform, self._hazards = uniform, hazards
        self._stmts: set[ir.Stmt] = set()
        self._mark_block(body)

    def __contains__(self, stmt: ir.Stmt) -> bool:
        return stmt in self._stmts

    def add(self, stmt: ir.Stmt) -> None:
        """One more of them."""
        self._stmts.add(stmt)

    def _mark_block(self, body: ir.Block, conds: tuple[Expr, ...] = (), apart: bool = False) -> bool:
        """Marks statements inside of which threads meet; whether there are any. ``conds`` are those around;
        ``apart``: in a loop that threads do not run equally often."""
        found = [self._mark(stmt, conds, apart) for stmt in body]
        return any(found)

    def _mark(self, stmt: ir.Stmt, conds: tuple[Expr, ...], apart: bool) -> bool:
        if isinstance(stmt, MEETINGS):
            self.add(stmt)
            return True
        if not ir.children(stmt):
            return False
        self._hazards.check_loop(stmt)
        apart = apart or (isinstance(stmt, ir.LOOPS) and self._uniform.parts(stmt))
        inside = [self._mark_block(block, (*conds, *cond), apart) for block, cond in sides(stmt)]
        if any(inside) or (not apart and self._hazards.inside(stmt, conds, self._hazards.is_alone)):
            self.add(stmt)
            if isinstance(stmt, ir.LOOPS):
                self._mark_exits(stmt.body)
            return True
        return False

    def _mark_exits(self, body: ir.Block) -> bool:
        """Marks the ways out of a loop that the block takes apart."""
        found = False
        for stmt in body:
            leaves = isinstance(stmt, (ir.Break, ir.Continue))
            if isinstance(stmt, ir.If):
                leaves = True in [self._mark_exits(block) for block in ir.children(stmt)]
            if leaves:
                self.add(stmt)
                found = True
        return found
