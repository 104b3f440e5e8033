"""Loops over tensors of one axis take vectors but where these end.

    parallel(1024): y[bx * 1024 + i] = x[bx * 1024 + i]
    ->  if n - bx * 1024 > 1023: the loop, all of whose elements exist    else: the loop

The last block alone moves elements one by one, whatever the loop does with them. Loops that stand behind each
other share the test, so that the loads of all of them are under way at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.cuts import border, cut_of, least_of
from tilec.backends.cuda.analysis.loops import loop_extents, widest_share
from tilec.backends.cuda.analysis.low_places import is_dense
from tilec.backends.cuda.analysis.threads import thread_count
from tilec.backends.cuda.analysis.vectors import holds_vector, vector_width, widest
from tilec.backends.cuda.nodes import EndLoop
from tilec.ir.analysis.renaming import copied
from tilec.ir.analysis.uniform import Uniformity
from tilec.ir.exprs import all_of, dtype_of, int_value, loads, same, uses
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
        return rewrite_launches(kernel, lambda launch: _Parting(kernel, launch).run())


class _Parting(ScopedRewrite):
    """The loops of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.proven = Proven(kernel, launch)
        self.proven.facts = self.facts
        self.uniformity = Uniformity(launch)
        self.made: set[Stmt] = set()

    def run(self) -> Launch:
        """The launch with its loops parted."""
        return self.launch if self.launch.schedule.phase else self.launch_with(self.block(self.launch.body))

    def block(self, block: Block) -> Block:
        """A block with its runs of loops of one test."""
        made: list[Stmt] = []
        rest = list(block)
        while rest:
            test = self._test(rest[0])
            if test is None:
                made += super().block((rest.pop(0),))
                continue
            count = self._run(rest, test)
            made += self._parted(rest[:count], test)
            del rest[:count]
        return tuple(made)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A loop around nothing else is two, as far as the elements of a trip exist and from there on: a test
        in every trip would keep the loads of the next one from starting."""
        made = super().stmt(stmt)
        loop = made[0] if made else None
        if not isinstance(loop, For) or loop.kind != "serial" or int_value(loop.step) != 1:
            return made
        tests = _each_once([inner.cond for inner in loop.body if isinstance(inner, If)])
        alone = all(inner in self.made or isinstance(inner, (Alloc, Bind)) for inner in loop.body)
        cut = cut_of(tests[0], loop.var, {}, {}) if alone and len(tests) == 1 else None
        if cut is None or not cut.first or not all(map(self.facts.is_stable, (loop.start, loop.stop))):
            return made
        middle = border([cut], loop.start, loop.stop)
        ends = copied((replace(loop, start=middle, body=_side(loop.body, False)),))
        whole = (Assume(tests[0], loc=loop.loc), *_side(loop.body, True))
        return [replace(loop, stop=middle, body=whole), *ends]

    def _run(self, block: Sequence[Stmt], test: Expr) -> int:
        """How many statements share the test of the first one, allocations between them."""
        last = 1
        for number, stmt in enumerate(block):
            found = self._test(stmt)
            if not isinstance(stmt, Alloc) and (found is None or not same(found, test)):
                break
            last = last if found is None else number + 1
        return last

    def _parted(self, run: Sequence[Stmt], test: Expr) -> list[Stmt]:
        tiles = [stmt for stmt in run if isinstance(stmt, Alloc)]
        loops = tuple(stmt for stmt in run if isinstance(stmt, Parallel))
        with self.facts.remember(test):
            whole = self.proven.block(loops)
        ends = (EndLoop(loop.vars, loop.extents, loop.body, loop.hints, loc=loop.loc) for loop in loops)
        made = If(test, whole, copied(tuple(ends)), loc=loops[0].loc)
        self.made.add(made)
        return [*tiles, made]

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
        test = all_of(_each_once(tests))
        with self.facts.remember(test):
            gains = all(self._is_whole(item, var, limit) for item in short)
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


def _side(block: Block, whole: bool) -> Block:
    """A block with one side of its branches."""
    sides = ((stmt.then if whole else stmt.orelse) if isinstance(stmt, If) else (stmt,) for stmt in block)
    return tuple(stmt for side in sides for stmt in side)


def _each_once(tests: Sequence[Expr]) -> list[Expr]:
    found: list[Expr] = []
    for test in tests:
        if not any(same(test, other) for other in found):
            found.append(test)
    return found
