"""Accesses of shared memory that take longer than they must: one warp's addresses, counted bank by bank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm.ir import Var

from tilec.backends.cuda.analysis.fragment_stores import fragment_store
from tilec.backends.cuda.analysis.fragments import WARP, coalesced
from tilec.backends.cuda.analysis.loops import loop_extents, written_out
from tilec.backends.cuda.analysis.mma import ROWS
from tilec.backends.cuda.analysis.threads import warps_of
from tilec.backends.cuda.nodes import AsyncCopy, ThreadLoop, WarpGemm, WarpgroupProduct
from tilec.errors import EvalError
from tilec.ir.exprs import loads, variables_of
from tilec.ir.interp.expressions import value_of
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import bank_conflicts, element_at
from tilec.ir.nodes import Alloc, Copy, Launch, Parallel, Region, Stmt, walk
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr

#: The lanes of the first warp.
_LANES = np.arange(WARP, dtype=np.int32)
_APART = "pad the rows of {} by 16 bytes, or let neighbouring threads take neighbours of a row"


def conflicts(launch: Launch) -> list[Road]:
    """What a launch loses by every buffer that a statement reads or writes with more than one access per
    bank."""
    layouts = {
        stmt.buffer: stmt.layout or Layout.row_major([int(extent) for extent in stmt.buffer.shape])
        for stmt in walk(launch.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope() in ("shared.dyn", "local.fragment")
    }
    found: list[Road] = []
    for stmt in walk(launch.body) if layouts else ():
        for buffer, verb, ways in _conflicts(stmt, layouts, warps_of(launch)):
            why, remedy = (
                f"{buffer.name} is {verb} with {ways}-way bank conflicts",
                _APART.format(buffer.name),
            )
            found.append(
                road_of(stmt, "shared memory", "several accesses of a bank in turn", Loss("", why, remedy))
            )
    return list(dict.fromkeys(found))


def _conflicts(stmt: Stmt, layouts: Mapping[Var, Layout], warps: int) -> Iterator[tuple[Var, str, int]]:
    if isinstance(stmt, WarpgroupProduct):
        return  # what wgmma and its lanes read lies in slabs for them
    if isinstance(stmt, WarpGemm):
        for region, across in ((stmt.a, stmt.trans_a), (stmt.b, not stmt.trans_b)):
            ways = _operand_ways(region, across, layouts)
            if ways > 1:
                yield region.buffer, "read by T.gemm", ways
    elif isinstance(stmt, ThreadLoop) and fragment_store(stmt, layouts) is None:
        body = Parallel(stmt.vars, stmt.extents, stmt.body)
        yield from _loop_conflicts(body, stmt.layout, stmt.vector, layouts)
    elif isinstance(stmt, AsyncCopy):
        loop = expand_copy(Copy(stmt.src, stmt.dst))
        if isinstance(loop, Parallel):
            layout = coalesced(loop_extents(loop), warps, stmt.width)
            yield from _loop_conflicts(loop, layout, stmt.width, layouts)


# ---- operands of products ----


def _operand_ways(region: Region, across: bool, layouts: Mapping[Var, Layout]) -> int:
    """The ways of one load of a warp: eight rows of 16 bytes, or a word for every lane."""
    layout, size = layouts.get(region.buffer), element_bytes(str(region.buffer.dtype))
    if layout is None:
        return 1
    chunk, lead = 16 // size, (0,) * (len(layout.shape) - 2)
    matrix = layout.shape[-1] * size % 16 == 0 and (not across or size == 2)
    if matrix:
        places = [layout.offset((*lead, row, 0)) for row in range(8)]
        return bank_conflicts(places, size, chunk, together=8)
    item, k = _LANES // 4 % min(ROWS, layout.shape[-1 if across else -2]), _LANES % 4 * (4 // size)
    rows, columns = (k, item) if across else (item, k)
    return bank_conflicts([int(place) for place in layout.offset((*lead, rows, columns))], size)


# ---- loops ----


def _loop_conflicts(
    loop: Parallel, layout: Layout, vector: int, layouts: Mapping[Var, Layout]
) -> Iterator[tuple[Var, str, int]]:
    """The accesses of a loop whose places are known, at its first registers."""
    start = element_at(layout, {"lane": _LANES, "warp": 0, "reg": 0, "group": 0})
    values = [np.broadcast_to(np.asarray(value, np.int32), _LANES.shape) for value in start]
    inside = np.all([value < size for value, size in zip(values, loop_extents(loop), strict=True)], axis=0)
    values = [np.where(inside, value, value[int(np.argmax(inside))]) for value in values]
    for item in accesses(loop.body):
        tile = layouts.get(item.buffer)
        indices = written_out(item.indices, loop)
        if (
            item.buffer.scope() != "shared.dyn"
            or tile is None
            or any(next(loads(index), None) is not None for index in indices)
        ):
            continue
        try:
            here = _evaluated(indices, dict(zip(loop.vars, values, strict=True)))
            after = _evaluated(indices, dict(zip(loop.vars, [*values[:-1], values[-1] + 1], strict=True)))
        except EvalError:  # divisors and shifts are not all defined where other variables are 0
            continue
        if any(np.any(index < 0) or np.any(index >= extent)
               for index, extent in zip(here, tile.shape, strict=True)):  # fmt: skip
            continue
        moves = bool(np.all(after[-1] - here[-1] == 1)) and vector > 1
        places = [int(place) for place in np.asarray(tile.offset(here))]
        ways = bank_conflicts(places, element_bytes(str(item.buffer.dtype)), vector if moves else 1)
        if ways > 1:
            yield item.buffer, "written" if item.is_write else "read", ways


def _evaluated(indices: Sequence[Expr], values: Mapping[Var, np.ndarray]) -> list[np.ndarray]:
    """Indices where the variables of a loop have these values, and all others are 0."""
    known = dict.fromkeys(variables_of(indices), np.zeros(WARP, np.int32)) | dict(values)
    return [np.broadcast_to(np.asarray(value_of(index, known), np.int64), _LANES.shape) for index in indices]
