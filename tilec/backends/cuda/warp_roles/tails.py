"""Tiles that end beyond their tensor.

TMA gives zeros for rows outside, but where many blocks ask for such rows they are slower than those that it
brings: on an H200 with 132 blocks a box of 128 rows took 291 clocks, and 721 with 80 of them outside
(docs/performance/gpu-products.md). Where nothing is kept of what such rows give, the last
tile along an axis gets boxes that end with the tensor, and the rows behind hold anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.warp_roles.epilogue import bounds
from tilec.backends.cuda.warp_roles.stores import ends_rows
from tilec.ir.exprs import conjuncts, dtype_of, substitute, uses
from tilec.ir.nodes import Bind, If, Parallel, Store, walk
from tilec.lowering.analysis.scopes import conditioned

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.warp_roles.nodes import TmaLoad
    from tilec.lowering.analysis.facts import Facts

#: Tiles of rows up to which the last one is likely to be loaded by many blocks at once; sizes of models,
#: mostly of whole tiles, are multiples of this.
MOST_TILES, MULTIPLE = 2, 8


def with_tail(
    load: TmaLoad,
    axis: int,
    loops: Sequence[Parallel],
    moving: Collection[Var],
    facts: Facts,
    few: bool = False,
) -> TmaLoad:
    """``load`` with boxes for the last tile, where that may well end beyond the tensor and its rows outside
    count for nothing. Its rows are those of ``axis`` of the accumulator, whose elements leave by ``loops``;
    from trip to trip its place depends on ``moving`` variables. ``few``: of tensors of few tiles of rows
    alone; else also of any number that is no multiple of `MULTIPLE`, for one more map in each launch."""
    start, extent, rows = load.start[-2], load.map.buffer.shape[-2], load.rows
    if load.offsets or uses(start, moving):
        return load
    if not _has_few(load, facts) and (few or divides(MULTIPLE, extent, facts)):
        return load
    if divides(rows, extent, facts) or not divides(rows, facts.inline(start), facts):
        return load
    if not all(_drops(loop, axis, start, extent, facts) for loop in loops):
        return load
    rest = replace(load.map, rest=rows)
    return replace(load, map=rest if _is_one(load, facts) else load.map, tail=rest)


def _has_few(load: TmaLoad, facts: Facts) -> bool:
    """Whether a tensor has at most `MOST_TILES` tiles of rows."""
    extent = load.map.buffer.shape[-2]
    return facts.prove(extent <= tirx.const(MOST_TILES * load.rows, dtype_of(extent))) is True


def _is_one(load: TmaLoad, facts: Facts) -> bool:
    """Whether there is one tile along the rows of a tensor, from its first row on."""
    extent, start = load.map.buffer.shape[-2], facts.inline(load.start[-2])
    zero, rows = tirx.const(0, dtype_of(start)), tirx.const(load.rows, dtype_of(extent))
    return all(facts.prove(each) is True for each in (extent <= rows, start <= zero, start >= zero))


def _drops(loop: Parallel, axis: int, start: Expr, extent: Expr, facts: Facts) -> bool:
    """Whether all that a loop stores lies beyond its tensor, or is left out, where the row lies beyond the
    load's."""
    if not all(isinstance(stmt, (Bind, If, Store)) for stmt in walk(loop.body)):
        return False
    var = loop.vars[axis]
    condition, body = conditioned(loop.body)
    tests = () if condition is None else conjuncts(condition)
    tested = [(each.a, each.b) for each in tests if isinstance(each, tirx.LT) and ends_rows(each, (var,))]
    at_zero = {var: tirx.const(0, dtype_of(var))}
    return all(
        any(
            _ends_with(substitute(index, at_zero), limit, start, extent, facts)
            for index, limit in (*tested, *bounds(store, var))
        )
        for store in walk(body)
        if isinstance(store, Store)
    )


def _ends_with(place: Expr, limit: Expr, start: Expr, extent: Expr, facts: Facts) -> bool:
    """Whether an axis starts at the same index as a load's and ends with it."""
    wide = [tirx.Cast("int64", each) for each in (place, start, limit, extent)]
    return facts.prove(tirx.EQ(wide[0], wide[1])) is True and facts.prove(wide[2] <= wide[3]) is True
