"""Rows that the blocks of a cluster share: each has a part of the columns of every tile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.long_tiles import on_chip
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.rows.columns import Element, RowColumns, row_columns
from tilec.backends.cuda.rows.parts import Parts
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.errors import UnsupportedError
from tilec.ir.exprs import same_all, substitute
from tilec.ir.nodes import PRODUCTS, Kernel, Launch, Reduce, Scan, walk
from tilec.ir.places import place_of
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


class SplitRows(Pass):
    """In: launches without products that ask for `split_row`. Out: for each, one whose blocks form clusters:
    each block has an equal part of the columns of every tile that is reduced or scanned along them, reduces
    that part, and tells the others, in their shared memory, what it comes to; all take in the same parts in
    the same order. A part that a fragment holds is read once. What does not hang on columns each block
    computes, and the first one stores. UnsupportedError where columns have no such parts."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its rows shared."""
        return rewrite_launches(kernel, lambda launch: _shared(launch, target))


def _shared(launch: Launch, target: Target) -> Launch:
    parts = launch.schedule.split_row or 1
    if parts == 1 or any(isinstance(stmt, PRODUCTS) for stmt in walk(launch.body)):
        return launch
    if not has_tma(target):
        return _noted(launch, f"has no effect on {target.name}: blocks form clusters from sm_90 on")
    if not any(isinstance(stmt, (Reduce, Scan)) for stmt in walk(launch.body)):
        return _noted(launch, "has no effect: nothing is reduced along an axis of a tile")
    try:
        _check_launch(launch, parts, target)
        found = row_columns(launch.body, parts)
        _check_tensors(found)
        return Parts(launch, found).launch()
    except Unfit as unfit:
        raise UnsupportedError(
            f"split_row = {parts}: {unfit}",
            place=place_of(unfit.stmt or launch) or place_of(launch, "T.Kernel"),
            why="each block of a cluster has an equal part of the columns of every tile",
            remedy=unfit.remedy or "leave split_row out",
        ) from unfit


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


def _check_tensors(found: RowColumns) -> None:
    """Unfit where a block may read what another one of its cluster writes."""
    tensors = [each for each in found.elements if not on_chip(each.buffer)]
    for one in tensors:
        read = [other for other in tensors if one.written and not other.written]
        for other in read:
            apart = not one.buffer.same_as(other.buffer) or _is_own(one, other, found)
            need(apart, f"{one.buffer.name} is read and written, not at the same place", one.stmt)


def _is_own(one: Element, other: Element, found: RowColumns) -> bool:
    """Whether two loops touch the same elements in the same iterations, which are those of a block alone."""
    along = any((var, -1) in found.columns for var in one.vars)
    names = dict(zip(other.vars, one.vars, strict=False))
    at = tuple(substitute(index, names) for index in other.at)
    return along and len(other.vars) == len(one.vars) and same_all(one.at, at)
