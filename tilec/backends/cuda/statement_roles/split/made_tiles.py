"""Tiles that threads change where their load has put them become two: what is loaded, and what is made of it.

    T = A[box]; T[i, j] = f(T[i, j]); C += T B    ->    T = A[box]; M[i, j] = f(T[i, j]); C += M B

What is made may stay in registers, and the loaded tile goes back to the producer as soon as it is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.statement_roles.split.loads import filled, is_loop
from tilec.ir.exprs import same_all
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Parallel, Stmt, Store, children, walk, with_children
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.uses import addressed_in, touches, uses_itself

if TYPE_CHECKING:
    from tvm.ir import Var


def with_made_tiles(launch: Launch) -> Launch:
    """A launch in whose loops no loaded tile is changed in its place before products read it."""
    rewrite = _MadeTiles(launch)
    body = rewrite.block(launch.body, False)
    return replace(launch, body=(*map(Alloc, rewrite.tiles), *body)) if rewrite.tiles else launch


class _MadeTiles:
    """Parts the tiles of one launch."""

    def __init__(self, launch: Launch) -> None:
        self.tiles: list[Var] = []
        self._named = addressed_in(launch.body)
        self._every = list(walk(launch.body))

    def block(self, block: Block, in_loop: bool) -> Block:
        """A block with what its loads bring and what is made of it apart."""
        for stmt in block if in_loop else ():
            tile = filled(stmt)
            if tile is not None and tile not in self._named:
                block = self._parted(block, stmt, tile)
        return tuple(
            with_children(stmt, [self.block(inner, in_loop or is_loop(stmt)) for inner in children(stmt)])
            if children(stmt) and not isinstance(stmt, Parallel)
            else stmt
            for stmt in block
        )

    def _parted(self, block: Block, load: Stmt, tile: Var) -> Block:
        """A block whose statements from the first one on that changes ``tile`` have another tile."""
        first = next((place for place, stmt in enumerate(block) if _changes(stmt, tile)), None)
        if first is None or block.index(load) > first or not self._is_own(tile, load, block):
            return block
        if not any(isinstance(stmt, Gemm) and touches(stmt, tile) for stmt in block[first:]):
            return block
        made = tirx.decl_buffer(
            static_extents(tile), str(tile.dtype), name=f"{tile.name}_made", scope="shared.dyn"
        )
        self.tiles.append(made)
        changed = replace(block[first], body=_writing(block[first], made))  # type: ignore[call-arg]
        return (*block[:first], changed, *with_buffers(block[first + 1 :], {tile: made}))

    def _is_own(self, tile: Var, load: Stmt, block: Block) -> bool:
        """Whether a tile is loaded once and used in this block alone, behind its load."""
        behind = set(walk(block[block.index(load) :]))
        users = [stmt for stmt in self._every if uses_itself(stmt, tile)]
        alone = [stmt for stmt in self._every if tile.same_as(filled(stmt))] == [load]
        return alone and all(stmt in behind for stmt in users)


def _changes(stmt: Stmt, tile: Var) -> bool:
    """Whether a loop writes every element of a tile from what that element was."""
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    if store is None or not store.buffer.same_as(tile):
        return False
    own = [load for load in loads_of(*walk((stmt,)))
           if load.source.same_as(tile)]  # fmt: skip
    return bool(own) and all(same_all(tuple(load.indices), tuple(store.indices)) for load in own)


def _writing(loop: Stmt, made: Var) -> Block:
    """The body of a loop whose store goes to another tile."""
    assert isinstance(loop, Parallel)
    *names, store = loop.body
    assert isinstance(store, Store)
    return (*names, replace(store, buffer=made))
