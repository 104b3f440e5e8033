"""Accesses of shared memory that take longer than they must: one warp's addresses, counted bank by bank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tvm.ir import Var

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import warps_of
from tilec.backends.cuda.analysis.layouts.fragment_stores import fragment_store
from tilec.backends.cuda.analysis.layouts.fragments import WARP, coalesced
from tilec.backends.cuda.analysis.layouts.loops import loop_extents, written_out
from tilec.backends.cuda.analysis.layouts.tiles import read_conflicts
from tilec.backends.cuda.nodes import AsyncCopy, ThreadLoop, ThreadVector, WarpGemm, WarpgroupProduct
from tilec.errors import EvalError
from tilec.ir.exprs import int_value, loads, variables_of
from tilec.ir.interp.expressions import value_of
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import BANK_BYTES, bank_conflicts, chunk, element_at
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    For,
    Launch,
    Parallel,
    Region,
    Stmt,
    children,
    walk,
)
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.accesses import Access, own_accesses
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr

#: The lanes of the first warp.
_LANES = np.arange(WARP, dtype=np.int32)
_APART = "pad the rows of {} by 16 bytes, or let neighbouring threads take neighbours of a row"


class Wait(NamedTuple):
    """What an access of a shared tile takes: ``ways`` times as long as without conflicts, and ``times`` the
    banks' time for one element of each lane, for all that a thread has of it. A lane moves ``bytes`` at
    once."""

    buffer: Var
    verb: str
    ways: int
    times: float
    bytes: int


def conflicts(launch: Launch) -> list[Road]:
    """What a launch loses by every buffer that a statement reads or writes with more than one access per
    bank."""
    layouts, found = tile_layouts(launch), list[Road]()
    for stmt in walk(launch.body) if layouts else ():
        for wait in waits(stmt, layouts, warps_of(launch)):
            if wait.ways == 1:
                continue
            why, remedy = (
                f"{wait.buffer.name} is {wait.verb} with {wait.ways}-way bank conflicts",
                _APART.format(wait.buffer.name),
            )
            found.append(
                road_of(stmt, "shared memory", "several accesses of a bank in turn", Loss("", why, remedy))
            )
    return list(dict.fromkeys(found))


def tile_layouts(launch: Launch) -> dict[Var, Layout]:
    """The layouts of the shared tiles and fragments of a launch."""
    return {
        stmt.buffer: stmt.layout or Layout.row_major([int(extent) for extent in stmt.buffer.shape])
        for stmt in walk(launch.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope() in ("shared.dyn", "local.fragment")
    }


def waits(stmt: Stmt, layouts: Mapping[Var, Layout], warps: int) -> Iterator[Wait]:
    """What one statement's accesses of shared tiles take whose places are known."""
    if isinstance(stmt, WarpgroupProduct):
        return  # what wgmma and its lanes read lies in slabs for them
    if isinstance(stmt, WarpGemm):
        for region, across in ((stmt.a, stmt.trans_a), (stmt.b, not stmt.trans_b)):
            yield Wait(region.buffer, "read by T.gemm", _operand_ways(region, across, layouts), 0, 0)
    elif isinstance(stmt, ThreadLoop) and fragment_store(stmt, layouts) is None:
        body = Parallel(stmt.vars, stmt.extents, stmt.body)
        yield from _loop_waits(body, stmt.layout, stmt.vector, layouts)
    elif isinstance(stmt, AsyncCopy):
        loop = expand_copy(Copy(stmt.src, stmt.dst))
        if isinstance(loop, Parallel):
            layout = coalesced(loop_extents(loop), warps, stmt.width)
            yield from _loop_waits(loop, layout, stmt.width, layouts)


# ---- operands of products ----


def _operand_ways(region: Region, across: bool, layouts: Mapping[Var, Layout]) -> int:
    """The ways of one load of a warp; 1 of a fragment without a layout."""
    layout = layouts.get(region.buffer)
    return 1 if layout is None else read_conflicts(layout, element_bytes(str(region.buffer.dtype)), across)


# ---- loops ----


class _Run(NamedTuple):
    """An access, the variable along which one instruction may move ``width`` elements, and how often an
    iteration has it."""

    item: Access
    var: Var
    width: int
    trips: int


def _loop_waits(loop: Parallel, layout: Layout, vector: int, layouts: Mapping[Var, Layout]) -> Iterator[Wait]:
    """The accesses of a loop whose places are known, at its first registers."""
    start = element_at(layout, {"lane": _LANES, "warp": 0, "reg": 0, "group": 0})
    values = [np.broadcast_to(np.asarray(value, np.int32), _LANES.shape) for value in start]
    inside = np.all([value < size for value, size in zip(values, loop_extents(loop), strict=True)], axis=0)
    values = [value[_active(inside)] for value in values]
    known = dict(zip(loop.vars, values, strict=True))
    share = prod(loop_extents(loop))
    for run in _runs(loop.body, loop.vars[-1], vector, 1):
        item, tile = run.item, layouts.get(run.item.buffer)
        if item.buffer.scope() != "shared.dyn" or tile is None:
            continue
        size = element_bytes(str(item.buffer.dtype))
        widest = min(run.width, chunk(tile), WIDEST // size)
        places = _places(
            written_out(item.indices, loop), known, run.var, tile, 1 if item.is_write else widest
        )
        if places is None:
            continue
        width = widest if places.moves else 1
        ways = bank_conflicts(places.offsets, size, width)
        times = ways * max(1.0, width * size / BANK_BYTES) / width * share * run.trips
        yield Wait(item.buffer, "written" if item.is_write else "read", ways, times, width * size)


def _active(inside: np.ndarray) -> np.ndarray:
    """For each lane one that has an iteration: itself, else the last one in front of it, with whose access
    goes the one that it would have; the first of all where none is."""
    before = np.maximum.accumulate(np.where(inside, _LANES, -1))
    return np.where(before < 0, int(np.argmax(inside)), before)


def _runs(block: Block, var: Var, width: int, trips: int) -> Iterator[_Run]:
    """The accesses of an iteration."""
    for stmt in block:
        for item in own_accesses(stmt):
            yield _Run(item, var, width, trips)
        count = (int_value(stmt.stop - stmt.start) or 1) if isinstance(stmt, For) else 1
        inner = (stmt.var, count) if isinstance(stmt, ThreadVector) else (var, width)
        for each in children(stmt):
            yield from _runs(each, *inner, trips * count)


class _Places(NamedTuple):
    """Where the lanes of a warp find their elements; ``moves``: the next ones along a variable lie beside
    them."""

    offsets: list[int]
    moves: bool


def _places(
    indices: Sequence[Expr], known: Mapping[Var, np.ndarray], var: Var, tile: Layout, width: int
) -> _Places | None:
    """None where places are not known, or not inside of the tile. What ``width`` neighbours along a variable
    find in one vector, in whichever order, they find where it begins."""
    if any(next(loads(index), None) is not None for index in indices):
        return None
    first = known.get(var, np.zeros(WARP, np.int32))
    try:
        found = [_evaluated(indices, {**known, var: first + step}) for step in range(max(width, 2))]
    except EvalError:  # divisors and shifts are not all defined where other variables are 0
        return None
    here, after, *_ = found
    if any(np.any(index < 0) or np.any(index >= extent)
           for index, extent in zip(here, tile.shape, strict=True)):  # fmt: skip
        return None
    begin = _begin(found[:width], width)
    if begin is not None:
        here, moves = [*here[:-1], begin], True
    else:
        moves = bool(np.all(after[-1] - here[-1] == 1))
    offsets = [int(place) for place in np.asarray(tile.offset(here))]
    return _Places(offsets, moves)


def _begin(found: Sequence[Sequence[np.ndarray]], width: int) -> np.ndarray | None:
    """Where in a row the vectors begin that the elements of ``found`` make up for each lane; None where they
    do not."""
    rows = all(np.array_equal(each[axis], found[0][axis]) for each in found for axis in range(len(each) - 1))
    columns = np.sort([each[-1] for each in found], axis=0)
    whole = np.all(columns == columns[0] + np.arange(width)[:, None]) and np.all(columns[0] % width == 0)
    return columns[0] if width > 1 and rows and whole else None


def _evaluated(indices: Sequence[Expr], values: Mapping[Var, np.ndarray]) -> list[np.ndarray]:
    """Indices where the variables of a loop have these values, and all others are 0."""
    known = dict.fromkeys(variables_of(indices), np.zeros(WARP, np.int32)) | dict(values)
    return [np.broadcast_to(np.asarray(value_of(index, known), np.int64), _LANES.shape) for index in indices]
