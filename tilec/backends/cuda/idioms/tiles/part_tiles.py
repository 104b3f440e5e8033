"""A tile that is loaded in front of a loop, and in every trip of it, is two tiles.

copy(K[0], k); gemm(q, k, s); for t: copy(K[t], k); gemm(q, k, s)
->  copy(K[0], k_first); gemm(q, k_first, s); for t: copy(K[t], k); gemm(q, k, s)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.pipelines.loads_ahead import load_of
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.ir.nodes import LOOPS, Alloc, Block, Kernel, Launch, Pipelined, Stmt, children, every_block, walk
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import touches, uses_itself
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Bytes of shared memory that stay free for results and barriers.
_FREE = 24 * 1024
_NOTE = "{0} in front of the loop that loads it again is a tile of its own"


class PartTiles(Pass):
    """In: any launch. Out: where a loop loads all of a shared tile before it reads it, and nothing behind
    it names the tile, what stands in front of it and begins by loading the tile has another one, as long as
    shared memory holds both: the loads of the loop then run ahead."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles."""
        return rewrite_launches(kernel, lambda launch: _parted(launch, target))


def _parted(launch: Launch, target: Target) -> Launch:
    found = next((each for each in _fronts(launch) if _has_room(each[0], launch, target)), None)
    if found is None:
        return launch
    tile, front = found
    own = tirx.decl_buffer(
        static_extents(tile), str(tile.dtype), name=f"{tile.name}_first", scope="shared.dyn"
    )

    def rewrite(block: Block) -> list[Stmt]:
        made = [with_buffers((stmt,), {tile: own})[0] if stmt in front else stmt for stmt in block]
        allocs = [
            replace(stmt, buffer=own)
            for stmt in block
            if isinstance(stmt, Alloc) and stmt.buffer.same_as(tile)
        ]
        return [*allocs, *made]

    body = rewrite_blocks(launch.body, rewrite)
    return _parted(with_notes(replace(launch, body=body), [_NOTE.format(tile.name)]), target)


def _fronts(launch: Launch) -> Iterator[tuple[Var, Block]]:
    """Tiles, and the statements from a load of each to the loop behind it that loads it again."""
    for block in every_block(launch.body):
        for at, stmt in enumerate(block):
            load = load_of(stmt)
            users = () if load is None else tuple(each for each in block if touches(each, load.tile))
            if load is None or len(users) < 2 or not _loads_again(users[-1], load.tile):
                continue
            front = block[at : block.index(users[-1])]
            if all(_is_among(each, (*front, users[-1])) for each in _users(launch, load.tile)):
                yield load.tile, front


def _users(launch: Launch, tile: Var) -> list[Stmt]:
    """The statements that name a tile themselves, but for its allocation."""
    return [stmt for stmt in walk(launch.body) if uses_itself(stmt, tile)]


def _is_among(stmt: Stmt, block: Block) -> bool:
    return any(stmt is each for each in walk(block))


def _loads_again(stmt: Stmt, tile: Var) -> bool:
    """Whether a loop fills a tile in each trip before it does anything else with it."""
    if not isinstance(stmt, LOOPS):
        return False
    (body,) = children(stmt)
    first = next((each for each in body if touches(each, tile)), None)
    load = None if first is None else load_of(first)
    return load is not None and load.tile.same_as(tile)


def _has_room(tile: Var, launch: Launch, target: Target) -> bool:
    """Whether one more tile fits beside all stages that loops ask for."""
    assert target.gpu is not None
    allocs = [
        stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn"
    ]
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined)]
    needed = tile_bytes(Alloc(tile)) + sum(tile_bytes(stmt) * _stages(stmt.buffer, loops) for stmt in allocs)
    return needed <= target.gpu.shared_bytes - _FREE


def _stages(tile: Var, loops: list[Pipelined]) -> int:
    """How many of a tile the loops that load it ask for."""
    asked = [max(loop.num_stages, 1) for loop in loops if _loads_again(loop, tile)]
    return max(asked, default=1)
