"""Which values may differ between the threads of a block, and which control flow may part them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import TensorLoad, Var

from tilec.ir import nodes as ir
from tilec.ir.exprs import walk
from tilec.ir.nodes import threads
from tilec.ir.nodes.threads import PER_THREAD

if TYPE_CHECKING:
    from tvm.ir import Expr


class Uniformity:
    """``varying`` are the scalars and the buffers of threads of which two threads may hold different values.

    Follows values through names, through what threads store to their own storage, and (with ``control``)
    through branches and loops that only some threads take. Shared and global elements are the same for all
    who read them."""

    def __init__(self, launch: ir.Launch, *, control: bool = True) -> None:
        self.varying: set[Var] = set(launch.thread_vars)
        self._control = control
        self._extents = launch.threads
        count = -1
        while count != len(self.varying):
            count = len(self.varying)
            self._block(launch.body, False)

    def varies(self, *exprs: Expr | int) -> bool:
        """Whether two threads may see different values of one of the expressions."""
        return any(self._varies(expr) for expr in exprs if not isinstance(expr, int))

    def _varies(self, expr: Expr) -> bool:
        nodes = walk(expr)
        return any(
            (isinstance(node, Var) and node in self.varying)
            or (isinstance(node, TensorLoad) and node.source in self.varying)
            for node in nodes
        )

    def parts(self, stmt: ir.Stmt) -> bool:
        """Whether only some threads may run what stands inside of a branch or loop, or run it more often."""
        if isinstance(stmt, ir.If):
            return self.varies(stmt.cond)
        if isinstance(stmt, ir.While):
            return self.varies(stmt.cond) or self._leaves(stmt.body)
        if isinstance(stmt, ir.For):
            return self.varies(stmt.start, stmt.stop, stmt.step) or self._leaves(stmt.body)
        if isinstance(stmt, ir.Pipelined):
            return self.varies(stmt.start, stmt.stop) or self._leaves(stmt.body)
        return False

    def _leaves(self, body: ir.Block, divergent: bool = False) -> bool:
        """Whether some threads alone may leave or go on with the loop around ``body``."""
        for stmt in body:
            if isinstance(stmt, (ir.Break, ir.Continue)) and divergent:
                return True
            if isinstance(stmt, ir.If):
                inner = divergent or self.varies(stmt.cond)
                if self._leaves(stmt.then, inner) or self._leaves(stmt.orelse, inner):
                    return True
        return False

    def _mark(self, var: Var, varies: bool) -> None:
        if varies:
            self.varying.add(var)

    def _block(self, body: ir.Block, divergent: bool) -> None:
        for stmt in body:
            self._stmt(stmt, divergent)
            inside = self._control and (divergent or self.parts(stmt))
            for block in ir.children(stmt):
                self._block(block, inside)

    def _stmt(self, stmt: ir.Stmt, divergent: bool) -> None:
        if isinstance(stmt, ir.Bind):
            self._mark(stmt.var, self.varies(stmt.value))
        elif isinstance(stmt, ir.Alloc):
            self._mark(stmt.buffer, stmt.init is not None and self.varies(stmt.init))
        elif isinstance(stmt, ir.Store) and stmt.buffer.scope() in PER_THREAD:
            self._mark(stmt.buffer, divergent or self.varies(stmt.value, *stmt.indices))
        elif isinstance(stmt, ir.Atomic):
            self._atomic(stmt)
        elif isinstance(stmt, (ir.For, ir.Pipelined)):
            self._mark(
                stmt.var, self.varies(stmt.start) or (isinstance(stmt, ir.For) and self.varies(stmt.step))
            )
        elif isinstance(stmt, threads.Lane):
            self._mark(stmt.var, stmt.kind not in threads.BLOCK_VOTES)
        elif isinstance(stmt, threads.LANE_PRODUCTS):
            self._mark(stmt.buffer, True)
        elif isinstance(stmt, threads.ThreadReduce):
            kept = [axis for axis in range(3) if self._extents[axis] > 1 and axis not in stmt.axes]
            self._mark(stmt.buffer, divergent or bool(kept) or self.varies(*stmt.indices))

    def _atomic(self, stmt: ir.Atomic) -> None:
        """What an element held before is another value for every thread that updates it."""
        if stmt.prev is not None:
            self._mark(stmt.prev, True)
        if stmt.buffer.scope() in PER_THREAD:
            self._mark(stmt.buffer, True)
