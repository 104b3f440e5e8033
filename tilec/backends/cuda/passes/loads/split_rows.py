"""Rows that the blocks of a cluster share: each has a part of the columns of every tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.blocks.long_tiles import on_chip
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.rows.columns import Element, RowColumns, row_columns
from tilec.backends.cuda.rows.parts import Parts
from tilec.backends.cuda.warp_roles.unfit import Obeying, need
from tilec.ir.exprs import int_value, linear_in, loads, same, uses
from tilec.ir.nodes import LOOPS, PRODUCTS, Atomic, For, Kernel, Launch, Pipelined, Reduce, Scan, walk
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

_WHY = "each block of a cluster has an equal part of the columns of every tile"


class SplitRows(Pass):
    """In: launches without products that ask for `split_row`. Out: for each, one whose blocks form clusters:
    each block has an equal part of the columns of every tile that is reduced or scanned along them, reduces
    that part, and tells the others, in their shared memory, what it comes to; all take in the same parts in
    the same order. A part that a fragment holds is read once. What does not hang on columns each block
    computes, and the first one stores. UnsupportedError where columns have no such parts."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its rows shared."""
        return rewrite_launches(kernel, lambda launch: _shared(kernel, launch, target))


def _shared(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    parts = launch.schedule.split_row or 1
    if parts == 1 or any(isinstance(stmt, PRODUCTS) for stmt in walk(launch.body)):
        return launch
    if not has_tma(target):
        return _noted(launch, f"has no effect on {target.name}: blocks form clusters from sm_90 on")
    if not any(isinstance(stmt, (Reduce, Scan)) for stmt in walk(launch.body)):
        return _noted(launch, "has no effect: nothing is reduced along an axis of a tile")
    with Obeying("split_row", launch, _WHY):
        _check_launch(launch, parts, target)
        found = row_columns(launch.body, parts)
        _check_tensors(found, launch, ScopedRewrite(kernel, launch).facts)
        return Parts(launch, found).launch()


def _noted(launch: Launch, why: str) -> Launch:
    return replace(launch, notes=(*launch.notes, f"split_row = {launch.schedule.split_row} {why}"))


def _check_launch(launch: Launch, parts: int, target: Target) -> None:
    """Unfit where a launch has clusters or threads of its author's, or tensors that may be one."""
    schedule = launch.schedule
    assert target.gpu is not None
    most = target.gpu.cluster_blocks
    need(parts <= most, f"clusters have up to {most} blocks", remedy=f"take up to {most}")
    need(schedule.clusters is None, "the launch has clusters already", remedy="leave out one of both")
    need(not launch.thread_vars, "its statements name threads")
    need(not schedule.may_alias, "its tensors may overlap, so that blocks may read what others have written")


def _check_tensors(found: RowColumns, launch: Launch, facts: Facts) -> None:
    """Unfit where a block may touch an element of a tensor that another one of its cluster writes."""
    tensors = [each for each in found.elements if not on_chip(each.buffer)]
    loops = tuple(stmt.var for stmt in walk(launch.body) if isinstance(stmt, (For, Pipelined)))
    once = not any(isinstance(stmt, LOOPS) for stmt in walk(launch.body))
    for one, other in combinations_with_replacement(tensors, 2):
        both = one.written and other.written
        adds = both and isinstance(one.stmt, Atomic) and isinstance(other.stmt, Atomic)
        if not one.buffer.same_as(other.buffer) or not (one.written or other.written) or adds:
            continue
        first, second = (_part(each, found, loops) for each in (one, other))
        how = "written by several blocks" if both else "read and written"
        need(
            (once and one is other) or _is_own(first, second, facts),
            f"{one.buffer.name} is {how}, not at the same place",
            one.stmt if one.written else other.stmt,
        )


@dataclass(frozen=True)
class _Part:
    """The elements that blocks touch along an axis of a tensor, of tiles of so many columns from ``start``
    on, and in a loop whole tiles further. ``axis`` is -1 for what the first block writes, or all read."""

    axis: int
    columns: int
    start: Expr
    written: bool


def _part(element: Element, found: RowColumns, loops: tuple[Var, ...]) -> _Part | None:
    """Which elements a block touches; None where that is not told by a tile's columns."""
    along = [var for var in element.vars if (var, -1) in found.columns]
    if not along:
        return _Part(-1, 1, tirx.const(0, "int32"), element.written)
    axes = [axis for axis, index in enumerate(element.at) if uses(index, along)]
    if len(axes) != 1 or any(on_chip(load.source) for load in loads(element.at[axes[0]])):
        return None
    size = found.size((along[0], -1))
    linear = linear_in(element.at[axes[0]], (*along, *loops))
    steps = [int_value(factor) for factor in linear[:-1]]
    if steps[:1] != [1] or any(step is None or step % size for step in steps[1:]):
        return None
    return _Part(axes[0], size, linear[-1], element.written)


def _is_own(one: _Part | None, other: _Part | None, facts: Facts) -> bool:
    """Whether each block touches in both what no other one does in the other."""
    if one is None or other is None or (one.axis, one.columns) != (other.axis, other.columns):
        return False
    if one.axis < 0:
        return one.written and other.written
    return same(one.start, other.start) or divides(one.columns, one.start - other.start, facts)
