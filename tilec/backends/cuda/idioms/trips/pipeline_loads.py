"""Serial loops that load tiles and multiply them are pipelined."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import (
    Alloc,
    Block,
    Break,
    Continue,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    Stmt,
    walk,
)
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Stages of a loop that its author has not pipelined, and bytes of shared memory that stay free for results
#: and barriers.
_FEWEST, _MOST, _FREE = 2, 4, 24 * 1024
_NOTE = "its loop over {} is pipelined in {} stages, which fit shared memory"


class PipelineLoads(Pass):
    """In: For loops (T.serial, range, T.unroll) that copy boxes of tensors to shared tiles and multiply.
    Out: Pipelined loops of the same trips, with 2 to 4 stages as shared memory allows, where no load depends
    on what the loop computes; loops of whose tiles two stages do not fit stay."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every launch rewritten."""
        return rewrite_launches(kernel, lambda launch: _pipelined(launch, target))


def _pipelined(launch: Launch, target: Target) -> Launch:
    assert target.gpu is not None
    tiles = [stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc)]
    room = target.gpu.shared_bytes - _FREE - sum(map(_bytes, tiles))
    notes: list[str] = []

    def rewritten(block: Block) -> list[Stmt]:
        return [_loop(stmt, room, notes) if isinstance(stmt, For) else stmt for stmt in block]

    body = rewrite_blocks(launch.body, rewritten)
    return with_notes(replace(launch, body=body), notes) if notes else launch


def _loop(loop: For, room: int, notes: list[str]) -> Stmt:
    """A loop pipelined where it may be; ``room``: bytes beside one stage of every tile."""
    copies = [stmt for stmt in loop.body if isinstance(stmt, Copy) and _is_load(stmt)]
    stage = sum(_bytes(tile) for tile in {copy.dst.buffer for copy in copies})
    multiplies = any(isinstance(stmt, Gemm) for stmt in loop.body)
    leaves = any(isinstance(stmt, (Break, Continue)) for stmt in walk(loop.body))
    if not copies or not multiplies or leaves or not _runs_ahead(copies, loop):
        return loop
    step, stages = int_value(loop.step), min(_MOST, 1 + room // stage)
    if step is None or step < 1 or stages < _FEWEST:
        return loop
    notes.append(_NOTE.format(loop.var.name, stages))
    if step == 1:
        return Pipelined(loop.var, loop.start, loop.stop, loop.body, stages, loc=loop.loc)
    trip = tirx.Var(str(loop.var.name), dtype_of(loop.var))
    count = tirx.floordiv(loop.stop - loop.start + (step - 1), step)
    body = rename(loop.body, {loop.var: loop.start + trip * step})
    return Pipelined(trip, tirx.const(0, dtype_of(trip)), count, body, stages, loc=loop.loc)


def _is_load(copy: Copy) -> bool:
    return bool(copy.src.buffer.scope() == "global" and copy.dst.buffer.scope() == "shared.dyn")


def _runs_ahead(copies: list[Copy], loop: For) -> bool:
    """Whether copies read tensors, and places, that nothing in the loop writes."""
    written = written_in(loop.body)
    places = {load.source for load in loads_of(*copies)}
    return not written & (places | {copy.src.buffer for copy in copies})


def _bytes(tile: Var) -> int:
    """What a tile takes of shared memory."""
    if tile.scope() != "shared.dyn":
        return 0
    return math.prod(static_extents(tile)) * element_bytes(str(tile.dtype))
