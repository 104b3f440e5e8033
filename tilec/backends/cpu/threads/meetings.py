"""Which statements of a launch its block has to take apart, because threads meet inside of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.exprs import inlined
from tilec.ir.nodes.threads import Lane, Sync, ThreadReduce

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.threads.grid import ThreadGrid
    from tilec.backends.cpu.threads.hazards import Hazards
    from tilec.ir.analysis.uniform import Uniformity

MEETINGS = (Sync, Lane, ThreadReduce, *ir.COLLECTIVE)
LOOPS = (ir.For, ir.Pipelined, ir.While)


class Meetings:
    """The statements in which threads meet, and those around them: barriers, exchanges, tile operations, and
    what threads touch of each other's in shared memory."""

    def __init__(
        self,
        body: ir.Block,
        grid: ThreadGrid,
        uniform: Uniformity,
        hazards: Hazards,
        pure: Mapping[Var, Expr],
    ) -> None:
        self._grid, self._uniform, self._hazards, self._pure = grid, uniform, hazards, pure
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
        apart = apart or (isinstance(stmt, LOOPS) and self._uniform.parts(stmt))
        inside = [self._mark_block(block, (*conds, *cond), apart) for block, cond in _sides(stmt)]
        if any(inside) or not (apart or self._alone(conds) or not self._hazardous(stmt, conds)):
            self.add(stmt)
            if isinstance(stmt, LOOPS):
                self._mark_exits(stmt.body)
            return True
        return False

    def _alone(self, conds: tuple[Expr, ...]) -> bool:
        """Whether one thread at most comes to a place."""
        return bool(self._grid.admitted(inlined(cond, self._pure) for cond in conds).sum() <= 1)

    def _hazardous(self, stmt: ir.Stmt, conds: tuple[Expr, ...]) -> bool:
        """Whether threads meet in shared memory inside of a statement."""
        if isinstance(stmt, ir.If):
            return self._parts_hazardous(stmt, conds)
        return any(self._hazards.within(block) for block in ir.children(stmt)) or (
            isinstance(stmt, LOOPS) and self._hazards.carried(stmt)
        )

    def _parts_hazardous(self, stmt: ir.If, conds: tuple[Expr, ...]) -> bool:
        """The same of a branch: its condition, one side, the other side."""
        between, cond = self._hazards.between, replace(stmt, then=(), orelse=())
        sides = [block for block, own in _sides(stmt) if not self._alone((*conds, *own))]
        return (
            any(self._hazards.within(block) for block in sides)
            or any(between((cond,), inner) for inner in (*stmt.then, *stmt.orelse))
            or any(between(stmt.then, inner) for inner in stmt.orelse)
        )

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


def _sides(stmt: ir.Stmt) -> list[tuple[ir.Block, tuple[Expr, ...]]]:
    """The blocks of a statement with the conditions that it puts around them."""
    if isinstance(stmt, ir.If):
        return [(stmt.then, (stmt.cond,)), (stmt.orelse, (tirx.Not(stmt.cond),))]
    return [(block, ()) for block in ir.children(stmt)]
