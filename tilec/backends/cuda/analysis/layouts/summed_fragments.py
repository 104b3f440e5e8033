"""Fragments that loops make of lines and that reductions sum: which of their axes threads share.

    for t in T.serial(L):
        for i, j in T.Parallel(D, V):
            p[i, j] = h[i, j] * k[i]
        T.reduce_sum(p, s, dim=0)

No trip moves elements of ``p`` or ``h`` from or to memory, so that nothing asks for lanes along the last
axis. What counts is what a thread has of lines along both axes (``k``), and how many lanes combine sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.loops import loop_axis, written_out
from tilec.ir.exprs import uses
from tilec.ir.layout import Digit, Layout
from tilec.ir.nodes import Alloc, For, Parallel, Reduce, Stmt, children
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import Access, accesses

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Block

#: What combining an element with that of another lane costs, a shuffle and an addition, beside an element of
#: a line, which is brought, converted and held: on an H200 a delta rule is best with 8 lanes to a sum and 16
#: elements of a line, not 4 and 32 nor 16 and 8 (us: 736, 899, 952), RWKV 7 with 8 and 8, not 4 and 16 nor 16
#: and 4 (743, 1082, 880), by any share between 0.6 and 0.87.
_COMBINED = 0.75
#: The same of a passage through shared memory, with its barrier.
_PASSED_ON = 32
#: The share of steps from which on they count for more than what is read ahead in fewer registers (H200, us:
#: delta rules 736 for 2700 and RWKV 7 743 for 1870 by less; a state space scan 1242 for 674 by 0.9).
_LESS = 0.5


class Summed(NamedTuple):
    """Fragments that are summed along ``axis`` by so many ``sums`` of a trip: how many lines along it, and
    across it, come into loops over them, results of the sums included."""

    axis: int
    along: int
    across: int
    sums: int

    def steps(self, layout: Layout) -> float:
        """What a thread has of lines, and what it takes to combine what it summed."""
        along, across = layout.digits[self.axis], layout.digits[1 - self.axis]
        own, beside = _count(along, "reg"), _count(across, "reg")
        combined = _COMBINED * beside * (_count(along, "lane").bit_length() - 1)
        each = combined + (_PASSED_ON if _count(along, "warp") > 1 else 0)
        return self.along * own + self.across * beside + self.sums * each


def summed_fragments(block: Block, fragments: Set[Var]) -> dict[Var, Summed]:
    """The fragments of two axes that loops of a trip use beside each other, such that reductions in the trip
    go through some of them, all along one axis, and nothing moves them there."""
    found: dict[Var, Summed] = {}
    for trip in _trips(block):
        found |= _summed_in(list(_inside(trip.body)), fragments)
    return found


def _trips(block: Block) -> Iterator[For]:
    """The innermost loops of a launch."""
    for stmt in block:
        if isinstance(stmt, Parallel):
            continue
        inner = [trip for part in children(stmt) for trip in _trips(part)]
        yield from inner
        if isinstance(stmt, For) and not inner:
            yield stmt


def _inside(block: Block) -> Iterator[Stmt]:
    """All statements of a block that are not inside a Parallel."""
    for stmt in block:
        yield stmt
        for part in () if isinstance(stmt, Parallel) else children(stmt):
            yield from _inside(part)


def _summed_in(stmts: Sequence[Stmt], fragments: Set[Var]) -> dict[Var, Summed]:
    loops = [stmt for stmt in stmts if isinstance(stmt, Parallel)]
    reductions = [stmt for stmt in stmts if isinstance(stmt, Reduce)]
    others = (stmt for stmt in stmts if not isinstance(stmt, (Parallel, Reduce, Alloc)))
    fixed = {buffer for stmt in others if not children(stmt) for buffer in buffers(stmt)}
    found: dict[Var, Summed] = {}
    for group in _groups(loops, fragments):
        sums = [stmt for stmt in reductions if stmt.src.buffer in group]
        axes = {stmt.axis for stmt in sums}
        moved = any(_moves(loop, group) for loop in loops)
        if len(axes) != 1 or moved or group & fixed:
            continue
        axis, lines = axes.pop(), [_lines(loops, group, position) for position in range(2)]
        results = {stmt.dst.buffer for stmt in sums} - lines[1 - axis]
        summed = Summed(axis, len(lines[axis]), len(lines[1 - axis]) + len(results), len(sums))
        found |= dict.fromkeys(group, summed)
    return found


def _lines(loops: Iterable[Parallel], group: Set[Var], position: int) -> set[Var]:
    """What loops over a group's fragments have at places that one variable alone tells."""
    over = (loop for loop in loops if any(item.buffer in group for item in accesses(loop.body)))
    return {item.buffer for loop in over for item in accesses(loop.body) if _taken(item, loop) == {position}}


def _groups(loops: Iterable[Parallel], fragments: Set[Var]) -> list[set[Var]]:
    """Fragments of two axes, those together that a loop has at the same place."""
    groups: list[set[Var]] = []
    for loop in loops:
        group = {
            item.buffer for item in accesses(loop.body) if item.buffer in fragments and _is_place(item, loop)
        }
        if group:
            met = [other for other in groups if other & group]
            groups = [other for other in groups if not other & group]
            groups.append(group.union(*met))
    return groups


def _is_place(item: Access, loop: Parallel) -> bool:
    """Whether an access names the element at the variables of a loop of two."""
    return len(loop.vars) == 2 and [loop_axis(index, loop) for index in item.indices] == [0, 1]


def _moves(loop: Parallel, group: Set[Var]) -> bool:
    """Whether a loop over a group's fragments has others of these, or elements of memory, at places that both
    variables tell."""
    items = accesses(loop.body)
    if not any(item.buffer in group for item in items):
        return False
    others = [item for item in items if item.buffer not in group or not _is_place(item, loop)]
    return any(item.buffer in group or len(_taken(item, loop)) > 1 for item in others)


def _taken(item: Access, loop: Parallel) -> set[int]:
    """The variables of a loop that tell the place of an access, by position."""
    indices = written_out(item.indices, loop)
    return {at for at, var in enumerate(loop.vars) if any(uses(index, (var,)) for index in indices)}


def summed_layout(
    extents: Sequence[int], summed: Summed, warps: int, vector: int, plain: Layout
) -> Layout | None:
    """The layout of a fragment that is summed along an axis: warps and lanes lie along the other one, but
    for as many lanes as make what a thread has of lines, and what lanes combine, least; a thread has runs of
    ``vector`` elements along the axis. None where warps do not divide the other axis, or where that takes
    no less than half of what a ``plain`` layout takes."""
    axis, other = summed.axis, 1 - summed.axis
    if extents[other] % warps:
        return None
    ways = [
        _laid(extents, axis, warps, vector, lanes)
        for lanes in (1 << power for power in range(WARP.bit_length()))
        if extents[axis] % lanes == 0 and extents[other] * lanes % (warps * WARP) == 0
    ]
    best = min(ways, key=summed.steps, default=None)
    return best if best is not None and summed.steps(best) <= _LESS * summed.steps(plain) else None


def _laid(extents: Sequence[int], axis: int, warps: int, vector: int, lanes: int) -> Layout:
    """A layout with so many lanes along ``axis``."""
    own, beside = extents[axis] // lanes, extents[1 - axis] * lanes // (warps * WARP)
    run = math.gcd(own, vector)
    along = (Digit(run, 1, "reg"), Digit(lanes, 1, "lane"), Digit(own // run, run, "reg"))
    across = (Digit(beside, own, "reg"), Digit(WARP // lanes, lanes, "lane"), Digit(warps, 1, "warp"))
    return Layout((along, across) if axis == 0 else (across, along))


def _count(digits: Sequence[Digit], space: str) -> int:
    return math.prod(digit.size for digit in digits if digit.space == space)
