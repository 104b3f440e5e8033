"""Windows that reach beyond an image at its rims alone are tested there, and whole between them.

for x in parallel(56): for k in serial(0, 3): if x + k >= 1 and x + k < 57: s = s + X[x + k - 1] * W[k]
->
for x in parallel(1): for k in serial(0, 3): if x + k >= 1 and x + k < 57: ..
for x in parallel(54): for k in serial(0, 3): s = s + X[x + k] * W[k]
for x in parallel(1): ..                                                          where x + 55 was x

Loops without such tests are joined, and take lanes, with those around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cpu.passes.loops.split_rims import inner_trips, part_of, short_names
from tilec.ir.exprs import all_of, conjuncts, inlined, int_value, linear_in, same
from tilec.ir.nodes import Block, If, Parallel, Stmt, walk
from tilec.ir.traits import Rewriter
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch

#: Iterations between the rims that are worth a loop of their own; along the last axis, which mostly has the
#: lanes, vectors of so many are whole.
_FEW, _LANES = 4, 8
#: Behind all iterations.
_END = 2**31


class SplitPadding(LaunchPass):
    """In: Parallel loops. Out: those whose branches in loops ask whether an element of a window exists, which
    numbers tell, are loops before, between and behind the rims, along each axis that is long enough."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops split."""
        return replace(launch, body=rewrite_blocks(launch.body, _in_block))


def _in_block(block: Block) -> list[Stmt]:
    return [made for stmt in block for made in (_split(stmt) if isinstance(stmt, Parallel) else [stmt])]


def _split(loop: Parallel) -> Sequence[Parallel]:
    """A loop as loops; what is between the rims of one axis is split along the next one, too."""
    if loop.hints.given:
        return [loop]
    names, trips = short_names(loop.body), tuple(inner_trips(loop.body))
    tests = [test for stmt in walk(loop.body) if isinstance(stmt, If) for test in conjuncts(stmt.cond)]
    for axis, extent in enumerate(loop.extents):
        windows = _Windows(loop.vars[axis], names, trips)
        found = [(test, bounds) for test in tests if (bounds := windows.bounds(test)) is not None]
        if not found or not isinstance(extent, int):
            continue
        whole = _LANES if axis == len(loop.vars) - 1 else 1
        first, last = _between([bounds for _, bounds in found], extent, whole)
        if last - first < _FEW or (first, last) == (0, extent):
            continue
        middle = replace(loop, body=_Whole([test for test, _ in found]).block(loop.body))
        return [
            *([part_of(loop, 0, first, axis)] if first else []),
            *_split(part_of(middle, first, last, axis)),
            *([part_of(loop, last, extent, axis)] if last < extent else []),
        ]
    return [loop]


def _between(bounds: Sequence[tuple[int, int]], extent: int, whole: int) -> tuple[int, int]:
    """The iterations for which all ``bounds`` hold, from one multiple of ``whole`` to another."""
    first = max(0, *(low for low, _ in bounds))
    last = min(extent, *(high for _, high in bounds))
    return -(-first // whole) * whole, last if last == extent else last // whole * whole


@dataclass(frozen=True, eq=False)
class _Windows:
    """An axis of a loop, the names of its body and the loops in it with their trips."""

    var: Var
    names: Mapping[Var, Expr]
    trips: tuple[tuple[Var, range], ...]

    def bounds(self, test: Expr) -> tuple[int, int] | None:
        """From which iteration to which one a test holds in all trips; None where it is none of an element of
        a window, whose place is the axis's and that of loops, and numbers."""
        positive = gap(inlined(test, self.names))
        axes = [self.var, *(var for var, _ in self.trips)]
        factors = linear_in(positive, axes) if positive is not None else []
        numbers = [number for number in map(int_value, factors) if number is not None]
        if not numbers or len(numbers) < len(factors) or not numbers[0] or not any(numbers[1:-1]):
            return None
        pairs = zip(numbers[1:-1], (trips for _, trips in self.trips), strict=True)
        least = numbers[-1] - 1 + sum(min(by * trips[0], by * trips[-1]) for by, trips in pairs)
        if numbers[0] > 0:
            return -(least // numbers[0]), _END
        return 0, least // -numbers[0] + 1


class _Whole(Rewriter):
    """Statements without the tests that hold."""

    def __init__(self, tests: Sequence[Expr]) -> None:
        super().__init__()
        self._tests = tests

    def stmts(self, stmt: Stmt) -> Block:
        """A branch without such tests, what is in it where it has no others."""
        if not isinstance(stmt, If):
            return super().stmts(stmt)
        left = [test for test in conjuncts(stmt.cond) if not any(same(test, each) for each in self._tests)]
        return super().stmts(replace(stmt, cond=all_of(left))) if left else self.block(stmt.then)
