"""Accumulators that start from something else start from 0, and get it behind the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.backends.cuda.idioms.writings import Writing, writings
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import dtype_of, int_value, substitute
from tilec.ir.nodes import Block, Fill, For, Gemm, Launch, Parallel, Pipelined, Stmt, Store, walk
from tilec.ir.traits import buffers, loads_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

_SUMS = ("float32", "int32")
_NOTE = "{} starts from 0 and gets what it started from behind its loop: one rounding moves"


class StartFromZero(LaunchPass):
    """In: a loop or a copy that gives a fragment its first value (beta = 1, a bias), and behind it in its
    block a loop whose products add to this fragment and which does nothing else with it. Out: a Fill with 0,
    and the value added behind the loop, where nothing that it is read from changes before. The sums are those
    of another order: the first value is added to that of the products in one rounding, where each partial sum
    had it before."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such sums; one whose tensors may overlap as it is."""
        if named(launch) or launch.thread_vars:
            return launch
        moved: list[str] = []
        body = rewrite_blocks(launch.body, lambda block: _moved(block, moved))
        return with_notes(replace(launch, body=body), map(_NOTE.format, moved)) if moved else launch


def _moved(block: Block, moved: list[str]) -> Block:
    for place, stmt in enumerate(block):
        for writing in writings(stmt):
            made = _behind_sum(block[place + 1 :], writing)
            if made is not None:
                moved.append(str(writing.tile.name))
                zero = tirx.const(0, str(writing.tile.dtype))
                start = Fill(whole_tile(writing.tile), zero, loc=stmt.loc)
                return _moved((*block[:place], *writing.rest, start, *made), moved)
    return block


def _behind_sum(behind: Block, writing: Writing) -> Block | None:
    """The statements behind a writer with the value added behind the loop that sums; None where there is no
    such loop, or the value has changed by then."""
    sums = next((place for place, stmt in enumerate(behind) if touches(stmt, writing.tile)), None)
    if sums is None or str(writing.tile.dtype) not in _SUMS or not writing.is_whole:
        return None
    loop = behind[sums]
    if not isinstance(loop, (For, Pipelined)) or not _only_sums(loop, writing.tile):
        return None
    if writing.sources & written_in(behind[: sums + 1]):
        return None
    return (*behind[: sums + 1], _added(writing, loop), *behind[sums + 1 :])


def _only_sums(loop: For | Pipelined, tile: Var) -> bool:
    """Whether products of a loop add to a fragment, and nothing else in it names it."""
    users = [stmt for stmt in walk(loop.body) if tile in set(buffers(stmt))]
    return all(
        isinstance(stmt, Gemm)
        and stmt.c.buffer.same_as(tile)
        and int_value(stmt.clear) == 0
        and not any(tile.same_as(region.buffer) for region in (stmt.a, stmt.b))
        and not any(load.source.same_as(tile) for load in loads_of(stmt))
        for stmt in users
    )


def _added(writing: Writing, loop: Stmt) -> Stmt:
    """The loop that adds a value to its tile."""
    tile = writing.tile
    fresh = tuple(tirx.Var(f"i{axis}", "int32") for axis in range(len(tile.shape)))
    names = {
        var: tirx.Cast(dtype_of(var), own) if dtype_of(var) != "int32" else own
        for own, (var, _, _) in zip(fresh, writing.axes, strict=True)
        if var is not None
    }
    total = tirx.BufferLoad(tile, list(fresh)) + substitute(writing.value, names)
    return Parallel(fresh, static_extents(tile), (Store(tile, fresh, total, loc=loop.loc),), loc=loop.loc)
