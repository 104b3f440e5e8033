"""Loops over tensors of one axis take vectors but where these end.

    parallel(1024): y[bx * 1024 + i] = x[bx * 1024 + i]
    ->  if n - bx * 1024 > 1023: the loop, all of whose elements exist    else: the loop

The last block alone moves elements one by one, whatever the loop does with them. Loops that stand behind each
other share the test, so that the loads of all of them are under way at once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.loop_widths import widest_share
from tilec.backends.cuda.analysis.accesses.low_places import is_dense
from tilec.backends.cuda.analysis.accesses.vectors import holds_vector, vector_width, widest
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.element_rows import fragments_along, held_by_elements
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.analysis.trips.cuts import border, cut_of, least_of
from tilec.backends.cuda.nodes import EndLoop
from tilec.ir.analysis.renaming import copied
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import all_of, dtype_of, each_once, int_value, loads, same, uses
from tilec.ir.nodes import Alloc, Assume, Bind, Block, For, If, Kernel, Launch, Parallel, Stmt, walk
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.drop_proven_tests import Proven

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class PartEnds(Pass):
    """In: Parallel loops of constant extents. Out: those that move neighbours of tensors of one axis, which
    hold a vector and end anywhere, are two: one behind a test that all of its elements exist, without the
    tests of the author's that say so, and an EndLoop for the others. With the key ``phase`` they stay."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loops parted."""
        return rewrite_launches(kernel, lambda launch: _parted(kernel, launch))


def _parted(kernel: Kernel, launch: Launch) -> Launch:
    if launch.schedule.phase:
        return launch
    made = _Parting(kernel, launch).run()
    is_parted = any(isinstance(stmt, EndLoop) for stmt in walk(made.body))
    return Proven(kernel, made).run() if is_parted else launch


class _Parting(ScopedRewrite):
    """The loops of one launch."""

    @cached_property
    def uniformity(self) -> Uniformity:
        """Of the launch, which few loops ask for."""
        return Uniformity(self.launch)

    @cached_property
    def by_elements(self) -> set[Var]:
        """The fragments that gain by no vectors, as others of their layout move by elements."""
        return held_by_elements(self.launch, self.facts)

    def block(self, block: Block) -> Block:
        """A block in which neighbours with one test share it."""
        return _joined(super().block(block))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop that gains by it is two."""
        test = self._test(stmt)
        if test is not None:
            assert isinstance(stmt, Parallel)
            ends = EndLoop(stmt.vars, stmt.extents, stmt.body, stmt.hints, loc=stmt.loc)
            return [If(test, (stmt,), copied((ends,)), loc=stmt.loc)]
        made = super().stmt(stmt)
        return self._trips(made) if isinstance(stmt, For) else made

    def _trips(self, made: list[Stmt]) -> list[Stmt]:
        """A loop around nothing else is two, as far as the elements of a trip exist and from there on: a test
        in every trip would keep the loads of the next one from starting."""
        (loop,) = made
        assert isinstance(loop, For)
        parts = [inner for inner in loop.body if not isinstance(inner, (Alloc, Bind))]
        tests = each_once(inner.cond for inner in parts if isinstance(inner, If))
        if len(tests) != 1 or not all(map(_is_parted, parts)):
            return made
        plain = loop.kind == "serial" and int_value(loop.step) == 1
        cut = cut_of(tests[0], loop.var, {}, {}) if plain else None
        if cut is None or not cut.first or not all(map(self.facts.is_stable, (loop.start, loop.stop))):
            return made
        middle = border([cut], loop.start, loop.stop)
        ends = copied((replace(loop, start=middle, body=_side(loop.body, False)),))
        whole = (Assume(tests[0], loc=loop.loc), *_side(loop.body, True))
        return [replace(loop, stop=middle, body=whole), *ends]

    def _test(self, stmt: Stmt) -> Expr | None:
        """Where a loop moves vectors alone that it does not move as it is; None where that is nowhere."""
        if type(stmt) is not Parallel or stmt.hints.given:
            return None
        for inner in walk((stmt,)):
            self._learn(inner)
        limit, var = widest_share(stmt, thread_count(self.launch)), stmt.vars[-1]
        short = [item for item in self._moving(stmt) if not self._is_whole(item, var, limit)]
        rooms = [self._room(item, stmt) for item in short]
        tests = [tirx.GT(room, tirx.const(0, dtype_of(room))) for room in rooms if room is not None]
        if limit == 1 or not tests or len(tests) < len(short):
            return None
        test = all_of(each_once(tests))
        with self.facts.remember(test):
            gains = all(self._is_whole(item, var, limit) for item in short)
        gains = gains and not fragments_along(stmt) & self.by_elements
        return test if gains and not self.uniformity.varies(test) else None

    def _moving(self, loop: Parallel) -> list[Access]:
        """The accesses of tensors that move along the last variable."""
        items = (item for item in accesses(loop.body) if item.buffer.scope() == "global")
        inline, var = self.facts.inline, loop.vars[-1]
        return [item for item in items if any(uses(inline(index), (var,)) for index in item.indices)]

    def _is_whole(self, item: Access, var: Var, limit: int) -> bool:
        """Whether an access moves whole vectors."""
        most = widest(item.buffer, limit)
        return vector_width(item.buffer, item.indices, var, limit, self.facts) == most

    def _room(self, item: Access, loop: Parallel) -> Expr | None:
        """What is positive where all elements of a tensor of one axis that a loop names exist; None where the
        variables of blocks and of loops around do not tell, and for tensors that may hold no vector."""
        if not is_dense(item.buffer) or not holds_vector(item.buffer, self.facts):
            return None
        ranges = dict(zip(loop.vars, loop_extents(loop), strict=True))
        index = self.facts.inline(item.indices[0])
        room = least_of(item.buffer.shape[0] - index, ranges, values_of(walk(loop.body)))
        inside = {stmt.var for stmt in walk(loop.body) if hasattr(stmt, "var")}
        if room is None or next(loads(room), None) is not None or uses(room, (*loop.vars, *inside)):
            return None
        return room


def _is_parted(stmt: Stmt) -> bool:
    """Whether a statement is a loop's two sides."""
    return isinstance(stmt, If) and any(isinstance(end, EndLoop) for end in stmt.orelse)


def _joined(block: Block) -> Block:
    """A block in which loops of one test, with allocations between them alone, are one branch."""
    made: list[Stmt] = []
    for stmt in block:
        at = max((at for at, each in enumerate(made) if not isinstance(each, Alloc)), default=0)
        before = made[at] if made else stmt
        if before is stmt or not _have_one_test(before, stmt):
            made.append(stmt)
            continue
        assert isinstance(before, If)
        assert isinstance(stmt, If)
        both = replace(before, then=(*before.then, *stmt.then), orelse=(*before.orelse, *stmt.orelse))
        made[at:] = [*made[at + 1 :], both]
    return tuple(made)


def _have_one_test(one: Stmt, other: Stmt) -> bool:
    both = isinstance(one, If) and isinstance(other, If) and same(one.cond, other.cond)
    return both and _is_parted(one) and _is_parted(other)


def _side(block: Block, whole: bool) -> Block:
    """A block with one side of its branches."""
    sides = ((stmt.then if whole else stmt.orelse) if isinstance(stmt, If) else (stmt,) for stmt in block)
    return tuple(stmt for side in sides for stmt in side)
