"""The iterations of one vector of a ThreadLoop: loads ahead, the body per element, stores behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import (
    agree,
)
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.loops.access_notes import take_road
from tilec.backends.cuda.emit.loops.vector_loads import VectorLoads
from tilec.backends.cuda.emit.loops.vector_scope import VectorScope
from tilec.backends.cuda.emit.loops.vector_stores import VectorStores
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of, inlined, reads, uses
from tilec.ir.nodes import Atomic, Bind, Block, If, walk
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.emission.statements import guarded, learn_binding, sequence

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.loops.reads_first import FirstReads, HaveRead


class Vector(VectorScope):
    """The code of one vector of iterations; the last variable stands at its start. ``first``: what all
    vectors of a thread read before any is worked on."""

    def __init__(
        self, stmt: ThreadLoop, ctx: DeviceContext, first: FirstReads | HaveRead | None = None
    ) -> None:
        super().__init__(stmt, ctx)
        self.loads, self.stores = VectorLoads(self, first), VectorStores(self)

    def emit(self) -> tirx.Stmt | None:
        """The code of all iterations of the vector, behind the reads of ``once``."""
        found = self._branch() if self.is_wide else None
        if found is not None:
            return self._under(*found)
        for inner in walk(self.body):
            if isinstance(inner, Bind):
                learn_binding(inner, self.ctx)
        ahead = self.loads.in_front()
        if not self.is_wide:
            take_road(self.stmt, [], self.ctx)
            with self.ctx.hoist_scope(self.fixed):
                return self.ctx.block(self.body)
        parts: list[tirx.Stmt] = []
        with self.ctx.hoist_scope(self.fixed):
            self.stores.plan()
            take_road(self.stmt, self.moved, self.ctx)
            self.stores.pair_up()
            for element in range(self.width if self._iterates() else 0):
                with self.ctx.scope(), self.at(element):
                    made = [self.stores.made(stmt, element) for stmt in self.body]
                    parts += [part for part in made if part is not None]
            return sequence([*ahead, *self.stores.waiting(), *parts, *self.stores.flush()])

    def _iterates(self) -> bool:
        """Whether anything is left to do element by element."""
        pairs = [kept.store for kept in self.stores.kept.values() if kept.words]
        return not all(isinstance(stmt, Bind) or stmt in pairs for stmt in self.body)

    def _branch(self) -> tuple[Block, If] | None:
        """The branch that is all of the body, behind names, if all elements of the vector take the same side;
        names that each element has for itself are inside of it."""
        *names, branch = self.body
        if not isinstance(branch, If) or not all(isinstance(stmt, Bind) for stmt in names):
            return None
        values = values_of(names)
        moving = {var: value for var, value in values.items() if uses(inlined(value, values), (self.var,))}
        cond = inlined(branch.cond, moving)
        whole = inlined(cond, values)
        changes = reads(whole, self.written)
        if changes or not agree(whole, self.var, self.width, self.ctx.facts):
            return None
        own = tuple(stmt for stmt in names if isinstance(stmt, Bind) and stmt.var in moving)
        common = tuple(stmt for stmt in names if stmt not in own)
        orelse = copied((*own, *branch.orelse)) if branch.orelse else ()
        return common, replace(branch, cond=cond, then=(*own, *branch.then), orelse=orelse)

    def _under(self, common: Block, branch: If) -> tirx.Stmt | None:
        """The vector behind one test, or one for each side of it."""
        ctx = self.ctx
        with ctx.scope():
            names = [emit(stmt, ctx) for stmt in common]
            test = ctx.value(branch.cond)
            once, inner = self._side(branch.then, branch.cond, True)
            if any(isinstance(stmt, Atomic) for stmt in walk(branch.then)):
                once = self._ahead_of(inlined(branch.cond, values_of(common)), once)
            others, other = self._side(branch.orelse, branch.cond, False) if branch.orelse else ([], None)
        then = None if inner is None else sequence([*once, inner])
        orelse = None if other is None else sequence([*others, other])
        made = _chosen(test, then, orelse)
        return sequence([part for part in (*names, made) if part is not None])

    def _side(self, body: Block, cond: Expr, value: bool) -> tuple[list[tirx.Bind], tirx.Stmt | None]:
        """The vector of one side of a branch, and what it reads in front."""
        with self.ctx.facts.remember(cond, value):
            inside = Vector(replace(self.stmt, body=body), self.ctx)
            inner = inside.emit()
        return inside.once, inner

    def _ahead_of(self, cond: Expr, once: list[tirx.Bind]) -> list[tirx.Bind]:
        """Those of the reads of a branch that stay inside of it; others go in front, under its condition:
        compilers read anew behind every addition in memory."""
        known = {stmt.var for stmt in self.body if isinstance(stmt, Bind)}
        if reads(cond, self.written):
            return once
        test = self.ctx.value(cond)
        left: list[tirx.Bind] = []
        for bind in once:
            inner = {*known, *(each.var for each in left)}
            if uses(bind.value, tuple(inner)) or uses(test, tuple(inner)):
                left.append(bind)
                continue
            nothing = tirx.const(0, dtype_of(bind.value))
            self.once.append(tirx.Bind(bind.var, tirx.if_then_else(test, bind.value, nothing)))
        return left


def _chosen(test: Expr, then: tirx.Stmt | None, orelse: tirx.Stmt | None) -> tirx.Stmt | None:
    """Both sides of a branch, either of which may be nothing."""
    if then is None:
        return None if orelse is None else guarded(orelse, [tirx.Not(test)])
    return tirx.IfThenElse(test, then, orelse)
