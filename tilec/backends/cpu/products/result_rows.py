"""How many rows of a tile of sums the tensors have that these go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.ir.exprs import dtype_of, loads, substitute, uses
from tilec.ir.nodes import Copy, Store, is_global

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tvm.ir import Expr

    from tilec.ir.nodes import Stmt


def result_rows(
    tile: Var, users: Mapping[Var, Sequence[Stmt]], seen: frozenset[Var] = frozenset()
) -> Iterator[Expr]:
    """The rows that each tensor has for those of ``tile``, from its first one on: what is behind it drops
    rows. By way of other tiles of as many rows, too. ``users``: the statements that name a buffer."""
    for stmt in users.get(tile, ()):
        for target, index in _places(stmt, tile):
            if is_global(target):
                yield index
            elif target not in seen and not target.same_as(tile):
                yield from result_rows(target, users, seen | {tile})


def _places(stmt: Stmt, tile: Var) -> Iterator[tuple[Var, Expr]]:
    """What a statement writes row by row from ``tile``, and how much there is from its first row on."""
    if isinstance(stmt, Copy) and stmt.src.buffer.same_as(tile):
        yield from _copied(stmt)
    if isinstance(stmt, Store):
        rows = {load.indices[0] for load in loads(stmt.value) if load.source.same_as(tile)}
        yield from (place for row in rows if isinstance(row, Var) for place in _stored(stmt, row))


def _copied(copy: Copy) -> Iterator[tuple[Var, Expr]]:
    """The rows of a copy whose sides match from their last axes on."""
    axis = len(copy.dst.start) - len(copy.src.start)
    if axis >= 0:
        yield copy.dst.buffer, copy.dst.buffer.shape[axis] - copy.dst.start[axis]


def _stored(store: Store, row: Var) -> Iterator[tuple[Var, Expr]]:
    """The axis of a store that its row moves."""
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        if uses(index, (row,)):
            yield store.buffer, size - substitute(index, {row: tirx.const(0, dtype_of(row))})
            return
