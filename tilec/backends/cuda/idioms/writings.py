"""What loops and copies write to tiles on chip, as values of their elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.ir.exprs import inlined, int_value, linear_in, loads, may_inline, same_all, uncast, walk
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import Bind, Block, Copy, Parallel, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.uses import touches, written_in
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


@dataclass(frozen=True, eq=False)
class Writing:
    """What a statement writes to ``tile``: ``value`` at ``tile[vars + starts]`` for each of ``axes``, which
    are the variable, the start and the extent; no variable for axes of one element. ``rest`` is what else
    the statement does."""

    tile: Var
    axes: tuple[tuple[Var | None, int, int], ...]
    value: Expr
    rest: tuple[Stmt, ...]

    @property
    def sources(self) -> set[Var]:
        """What the value is read from."""
        return {load.source for load in loads(self.value)}

    @property
    def is_plain(self) -> bool:
        """Whether the value is one element, converted at most: as cheap to read again as from the tile."""
        value = uncast(self.value)
        return isinstance(value, TensorLoad) and value.source.scope() == "global"

    @property
    def turns(self) -> bool:
        """Whether all elements of fragments that the value is made of lie at the transposed place."""
        across = tuple(var for var, _, _ in self.axes)[::-1]
        held = [load for load in loads(self.value) if load.source.scope() == "local.fragment"]
        known = len(across) == 2 and None not in across
        return known and bool(held) and all(same_all(load.indices, across) for load in held)

    @property
    def is_whole(self) -> bool:
        """Whether every element of the tile is written."""
        return tuple(extent for _, _, extent in self.axes) == static_extents(self.tile)

    @property
    def rank(self) -> int:
        """How many variables there are."""
        return sum(var is not None for var, _, _ in self.axes)


def writings(stmt: Stmt) -> Iterator[Writing]:
    """What a statement writes to tiles on chip, tile by tile."""
    loop = expand_copy(stmt) if isinstance(stmt, Copy) and stmt.dst.buffer.scope() != "global" else stmt
    if not isinstance(loop, Parallel) or not all(isinstance(part, (Bind, Store)) for part in loop.body):
        return
    names = values_of(loop.body)
    for place, store in enumerate(loop.body):
        if not isinstance(store, Store) or store.buffer.scope() not in ("shared.dyn", "local.fragment"):
            continue
        if not may_inline([store.value], names):
            continue
        others = (*loop.body[:place], *loop.body[place + 1 :])
        value = inlined(store.value, names)
        axes = _axes(store, loop)
        if (
            axes is None
            or any(touches(other, store.buffer) for other in others)
            or any(is_foreign(node) for node in walk(value))
        ):
            continue
        sources = {load.source for load in loads(value)}
        if store.buffer in sources or sources & written_in(loop.body[place + 1 :]):
            continue
        yield Writing(store.buffer, axes, value, _without(loop, others))


def _without(loop: Parallel, others: Block) -> tuple[Stmt, ...]:
    return (replace(loop, body=others),) if any(isinstance(part, Store) for part in others) else ()


def _axes(store: Store, loop: Parallel) -> tuple[tuple[Var | None, int, int], ...] | None:
    """The axes of a tile that a loop writes, every variable on one of its own; None for other indices, and
    where they may lie outside of the tile."""
    found: list[tuple[Var | None, int, int]] = []
    for index, size in zip(store.indices, static_extents(store.buffer), strict=True):
        linear = linear_in(index, loop.vars)
        start = int_value(linear[-1]) if linear else None
        moving = [place for place, factor in enumerate(linear[:-1]) if int_value(factor) != 0]
        if start is None or len(moving) > 1 or any(int_value(linear[place]) != 1 for place in moving):
            return None
        var = loop.vars[moving[0]] if moving else None
        extent = int_value(loop.extents[moving[0]]) if moving else 1
        if extent is None or start < 0 or start + extent > size:
            return None
        found.append((var, start, extent))
    used = [var for var, _, _ in found if var is not None]
    return tuple(found) if len(set(used)) == len(used) == len(loop.vars) else None
