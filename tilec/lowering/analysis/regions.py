"""Regions of buffers: how far they move, what they have in common, how large they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.errors import CompileError
from tilec.ir.exprs import int_value, same_number, substitute, uses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var
    from tvm.sym import Analyzer

    from tilec.ir.nodes import Region


def static(extent: int | Expr) -> int:
    """A build-time extent. CompileError where it is a run-time value, which tiles of products never have."""
    value = int_value(extent)
    if value is None:
        raise CompileError("a tile of a product has a run-time extent", why=str(extent))
    return value


def is_whole(region: Region) -> bool:
    """Whether a region is all of its buffer, whose extents are known at build time."""
    return all(
        int_value(start) == 0 and same_number(extent, size)
        for start, extent, size in zip(region.start, region.extent, region.buffer.shape, strict=True)
    )


def moved(region: Region, values: Mapping[Var, Expr], analyzer: Analyzer) -> Region:
    """``region`` with variables replaced in its start."""
    return replace(
        region, start=tuple(analyzer.simplify(substitute(start, values)) for start in region.start)
    )


def depends(region: Region, var: Var) -> bool:
    """Whether the place of ``region`` varies with ``var``."""
    return any(uses(start, {var}) for start in region.start)


def steps_of(region: Region, var: Var, analyzer: Analyzer) -> dict[int, int] | None:
    """By axis, how far the start of ``region`` moves when ``var`` grows by one; axes that stay are left out.

    None where a start does not move by a constant."""
    steps = {}
    for axis, start in enumerate(region.start):
        if not uses(start, {var}):
            continue
        step = int_value(analyzer.simplify(substitute(start, {var: var + 1}) - start))
        if step is None:
            return None
        steps[axis] = step
    return steps


def stretched(region: Region, axis: int, extent: int | Expr) -> Region:
    """``region`` with another extent on ``axis``."""
    return replace(region, extent=(*region.extent[:axis], extent, *region.extent[axis + 1 :]))


def minima(count: int | Expr) -> list[int | Expr]:
    """What a count is the least of: itself where it is no minimum."""
    if isinstance(count, tirx.Min):
        return [*minima(count.a), *minima(count.b)]
    return [count]


def may_overlap(first: Region, second: Region) -> bool:
    """Whether two regions may have an element in common: they are of one buffer, and on no axis known to be
    apart."""
    if not first.buffer.same_as(second.buffer):
        return False
    analyzer = sym.Analyzer()
    for axis, start in enumerate(first.start):
        distance = int_value(analyzer.simplify(second.start[axis] - start))
        length, other = int_value(first.extent[axis]), int_value(second.extent[axis])
        if distance is None or length is None or other is None:
            continue
        if distance >= length or -distance >= other:
            return False
    return True
