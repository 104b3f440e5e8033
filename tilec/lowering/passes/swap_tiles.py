"""Trips that make a new tile of the old one and copy it back take turns with the two.

for t in range(n): b = f(a); copy(b, a)
->
for t in range(n // 2): b = f(a); a = f(b)
if n is odd: b = f(a); copy(b, a)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.ir.analysis.renaming import renamed
from tilec.ir.exprs import int_value, reads, same_all
from tilec.ir.nodes import Alloc, Bind, Block, Copy, Fill, For, Launch, Parallel, Stmt, Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import count_uses, touches, written_in
from tilec.lowering.analysis.whole_stores import stores_each
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.trip_pairs import in_pairs, runs_in_groups

if TYPE_CHECKING:
    from tvm.ir import Var

#: Statements of a trip that may be there three times.
_FEW = 24


@dataclass(frozen=True)
class SwapTiles(LaunchPass):
    """In: loops whose trips write all of a tile of one of the ``scopes``, and end with a copy of it to
    another one that they only read. Out: loops over pairs of trips, the second of which reads the former and
    writes the latter."""

    scopes: tuple[str, ...]

    def launch(self, launch: Launch) -> Launch:
        """The launch with its tiles in turns."""

        def block(body: Block) -> list[Stmt]:
            return [new for stmt in body for new in self._swapped(stmt, launch)]

        return replace(launch, body=rewrite_blocks(launch.body, block))

    def _swapped(self, stmt: Stmt, launch: Launch) -> list[Stmt]:
        """A loop in pairs of trips; any other statement as it is."""
        tiles = _copied_last(stmt)
        if tiles is None or not self._may_swap(*tiles):
            return [stmt]
        assert isinstance(stmt, For)
        new, old = tiles
        work = stmt.body[:-1]
        own = any(isinstance(inner, Alloc) and inner.buffer in tiles for inner in walk(work))
        if own or old in written_in(work) or not _is_made(work, new):
            return [stmt]
        if count_uses(launch.body, new) > count_uses(stmt.body, new):
            return [stmt]
        return in_pairs(stmt, work, renamed(work, {new: old, old: new}))

    def _may_swap(self, new: Var, old: Var) -> bool:
        alike = str(new.dtype) == str(old.dtype) and new.scope() == old.scope() and not new.same_as(old)
        return alike and _sizes(new) == _sizes(old) and new.scope() in self.scopes


def _copied_last(stmt: Stmt) -> tuple[Var, Var] | None:
    """The tiles the first of which is copied to the second one at the end of each trip of a loop of a few
    statements."""
    if not isinstance(stmt, For) or not runs_in_groups(stmt) or len(list(walk(stmt.body))) > _FEW:
        return None
    last = stmt.body[-1]
    if isinstance(last, Copy):
        return (last.src.buffer, last.dst.buffer) if is_whole(last.src) and is_whole(last.dst) else None
    store = last.body[0] if isinstance(last, Parallel) else None
    if not isinstance(store, Store) or not isinstance(store.value, TensorLoad):
        return None
    assert isinstance(last, Parallel)
    moves = same_all(tuple(store.value.indices), tuple(store.indices)) and _makes_all(last, store.buffer)
    return (store.value.source, store.buffer) if moves else None


def _is_made(body: Block, tile: Var) -> bool:
    """Whether a body writes all of a tile, which is not its own, before anything reads it."""
    first = next((stmt for stmt in body if touches(stmt, tile)), None)
    if isinstance(first, Fill):
        return is_whole(first.dst)
    if isinstance(first, Copy):
        return first.dst.buffer.same_as(tile) and is_whole(first.dst)
    return isinstance(first, Parallel) and _makes_all(first, tile)


def _makes_all(loop: Parallel, tile: Var) -> bool:
    """Whether the iterations of a loop store to each element of a tile, and read none."""
    *binds, last = loop.body
    if not isinstance(last, Store) or not all(isinstance(stmt, Bind) for stmt in binds):
        return False
    read = any(reads(value, {tile}) for stmt in loop.body for value in expressions(stmt))
    return last.buffer.same_as(tile) and stores_each(last, loop) and not read


def _sizes(tile: Var) -> list[int | None]:
    return [int_value(size) for size in tile.shape]
