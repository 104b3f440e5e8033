"""Branches that only some threads take are taken apart where these have to wait for others: a barrier has to
stand where all threads come.

if S[tx] > a: S[n - tx] = 1    ->    taken = S[tx] > a
                                     if taken: S[n - tx] = 1        (`Synchronise` puts a barrier in front)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.ir.analysis.jumps import jumps
from tilec.ir.analysis.renaming import renamed
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import all_of, dtype_of, loads, uses
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Bind,
    Break,
    Continue,
    If,
    Launch,
    Rest,
    Stmt,
    Store,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import defined, mentioned
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.analysis.thread_hazards import Hazards, sides
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block

#: Conditions around a place, outermost first.
Conds: TypeAlias = "tuple[Expr, ...]"


@dataclass(frozen=True)
class SplitBranches(LaunchPass):
    """In: branches that only some threads take, and in them statements that touch what other threads touch in
    statements before, on the other side or in the condition. Out: such a branch is several that follow each
    other, each under conditions that threads keep; loops that all threads run stand around them. Lanes of
    one warp that are known wait for each other where they are, and loops that threads run as often as they
    like stay whole. An author who has threads meet is trusted where it is not known which elements they
    touch (``S[tx ^ j]`` for a j of the run time): barriers stand where these are others'. ``whole_warps``:
    lanes can wait for all of their warp alone."""

    whole_warps: bool = False

    def launch(self, launch: Launch) -> Launch:
        """The launch with such branches taken apart."""
        if not launch.thread_vars:
            return launch
        return replace(launch, body=_Launch(launch, self.whole_warps).block(launch.body, ()))


class _Launch:
    """What is known of a launch: where its threads part, and where they meet in memory."""

    def __init__(self, launch: Launch, whole_warps: bool) -> None:
        self.whole_warps = whole_warps
        self.uniform = Uniformity(launch)
        placed = any(isinstance(stmt, Sync) and stmt.kind == "threads" for stmt in walk(launch.body))
        self.hazards = Hazards(ThreadGrid.of(launch), launch.body, self.uniform, trusts=placed)

    def block(self, block: Block, conds: Conds) -> Block:
        """The statements of a block to which all threads come, under ``conds`` that do not part them."""
        return tuple(new for stmt in block for new in self._stmt(stmt, conds))

    def _stmt(self, stmt: Stmt, conds: Conds) -> Block:
        if not self.parts(stmt):
            blocks = [self.block(inner, (*conds, *own)) for inner, own in sides(stmt)]
            return (with_children(stmt, blocks),) if blocks else (stmt,)
        for inner in walk((stmt,)):
            self.hazards.check_loop(inner)
        if not isinstance(stmt, If) or not self.meets_inside(stmt, conds):
            return (stmt,)
        return _Taken(self, conds).branch(stmt)

    def variable(self, name: str, dtype: str, value: Expr) -> Var:
        """A variable of threads for a value."""
        made = tirx.decl_buffer((1,), dtype, name, scope="local.var")
        if self.uniform.varies(value):
            self.uniform.varying.add(made)
        return made

    def parts(self, stmt: Stmt) -> bool:
        """Whether only some of the threads run the blocks inside."""
        return not isinstance(stmt, Rest) and self.uniform.parts(stmt)

    def meets_inside(self, stmt: Stmt, conds: Conds) -> bool:
        """Whether threads meet in memory anywhere inside of a statement, where barriers could be."""
        if isinstance(stmt, LOOPS) and self.uniform.parts(stmt):
            return False
        if self.waits(stmt):
            return not self._is_of_warp(conds)
        deeper = (self.meets_inside(inner, (*conds, *own)) for block, own in sides(stmt) for inner in block)
        return self.hazards.inside(stmt, conds, self._is_of_warp) or any(deeper)

    def waits(self, stmt: Stmt) -> bool:
        """Whether lanes wait at a statement for all of their warp, whoever else its author wants there."""
        return self.whole_warps and isinstance(stmt, Sync) and stmt.kind == "warp"

    def _is_of_warp(self, conds: Conds) -> bool:
        """Whether conditions admit one thread at most, or lanes of one warp that are known and can wait for
        each other."""
        if self.hazards.is_alone(conds):
            return True
        found = self.hazards.exactly(conds)
        if found is None or not found.any():
            return False
        threads = np.flatnonzero(found)
        if self.whole_warps and len(threads) < WARP:
            return False
        return bool(threads[0] // WARP == threads[-1] // WARP)


@dataclass
class _Taken:
    """What threads do under ``mask``, the conditions that part them, as statements to which all come.
    ``conds`` are all conditions around, as their author wrote them."""

    launch: _Launch
    conds: Conds
    mask: Conds = ()
    out: list[Stmt] = field(default_factory=list)
    run: list[Stmt] = field(default_factory=list)

    def branch(self, stmt: If) -> Block:
        """The statements that a branch becomes."""
        cond = self._held(stmt)
        for (block, own), guard in zip(sides(stmt), (cond, tirx.Not(cond)), strict=True):
            inner = _Taken(self.launch, (*self.conds, *own), (*self.mask, guard))
            self.out += inner.block(block)
        return tuple(self.out)

    def _held(self, stmt: If) -> Expr:
        """A condition that stays what it is."""
        if next(loads(stmt.cond), None) is None:
            return stmt.cond
        taken = self.launch.variable("taken", "bool", stmt.cond)
        self.out.append(Alloc(taken, loc=stmt.loc))
        self.run.append(Store(taken, (_zero(),), stmt.cond, loc=stmt.loc))
        self._flush(())
        return tirx.BufferLoad(taken, [_zero()])

    def block(self, block: Block) -> Block:
        """The statements that a block becomes."""
        while block:
            stmt, rest = block[0], block[1:]
            block = self._add(stmt, rest)
        self._flush(())
        return tuple(self.out)

    def _add(self, stmt: Stmt, rest: Block) -> Block:
        """Takes a statement; what is behind it, as it reads then."""
        if self._is_free(stmt):
            self.out.append(stmt)
            return rest
        if isinstance(stmt, Alloc) and stmt.buffer.scope() == "local.var":
            self.out.append(replace(stmt, init=None))
            return (Store(stmt.buffer, (_zero(),), stmt.init, loc=stmt.loc), *rest)
        if self._is_of_all(stmt) or self._is_apart(stmt):
            block = self._flush((stmt, *rest))
            self.out += self._apart(block[0])
            return block[1:]
        meets = self.launch.hazards.between(self.run, stmt)
        block = self._flush((stmt, *rest)) if meets else (stmt, *rest)
        self.run.append(block[0])
        return block[1:]

    def _is_free(self, stmt: Stmt) -> bool:
        """Whether a statement may stand in front of the run: storage, and names of arithmetic."""
        if isinstance(stmt, Bind):
            named = {var for made in self.run for var in defined(made)}
            return next(loads(stmt.value), None) is None and not uses(stmt.value, named)
        return isinstance(stmt, Alloc) and stmt.init is None

    def _is_of_all(self, stmt: Stmt) -> bool:
        """Whether all threads can do a statement alike: names of what does not differ, storage, ways out of
        loops."""
        if isinstance(stmt, Bind):
            return not self.launch.uniform.varies(stmt.value)
        return isinstance(stmt, (Alloc, Break, Continue)) or self.launch.waits(stmt)

    def _is_apart(self, stmt: Stmt) -> bool:
        """Whether all threads have to come to what is inside of a statement."""
        if self.launch.meets_inside(stmt, self.conds):
            return True
        return next(jumps(stmt), None) is not None

    def _apart(self, stmt: Stmt) -> Block:
        if self._is_of_all(stmt):
            return (stmt,)
        if isinstance(stmt, If) and self.launch.uniform.parts(stmt):
            return _Taken(self.launch, self.conds, self.mask).branch(stmt)
        blocks = [
            _Taken(self.launch, (*self.conds, *own), self.mask).block(inner) for inner, own in sides(stmt)
        ]
        return (with_children(stmt, blocks),)

    def _flush(self, rest: Block) -> Block:
        """Ends a run of statements. What ``rest`` reads of its names is kept in variables of threads."""
        if not self.run:
            return rest
        used = {name for stmt in walk(rest) for name in mentioned(stmt)}
        names = [var for stmt in self.run for var in defined(stmt) if var in used]
        kept = {var: self.launch.variable(str(var.name), dtype_of(var), var) for var in names}
        self.out += [Alloc(buffer) for buffer in kept.values()]
        stores = [Store(buffer, (_zero(),), var) for var, buffer in kept.items()]
        body = (*self.run, *stores)
        self.out.append(If(all_of(list(self.mask)), body, loc=self.run[0].loc) if self.mask else body[0])
        self.run = []
        return renamed(rest, {var: tirx.BufferLoad(buffer, [_zero()]) for var, buffer in kept.items()})


def _zero() -> Expr:
    return tirx.const(0, "int32")
