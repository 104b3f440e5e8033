"""Stores of lanes to every second, third or fourth element that together fill vectors: colours of pixels,
halves of complex numbers, pairs that are turned. What they store is kept until the last of them, then changes
places and is written side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.access import flat_index
from tilec.backends.cpu.emit.vectors.pieces import WIDEST_GAP
from tilec.backends.cpu.products.tir import index, span
from tilec.ir.exprs import dtype_of, int_value, linear_in, reads, same_all
from tilec.ir.nodes import Block, Stmt, Store, walk
from tilec.ir.traits import buffers, expressions
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import sequence
from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@dataclass(eq=False)
class Sharing:
    """Stores by how far behind the first element of a lane each lies; ``kept`` is what they have stored."""

    places: Mapping[int, Store]
    last: Store
    kept: dict[int, Expr] = field(default_factory=dict)

    def store(self, stmt: Store, stored: Expr, ctx: LaneContext) -> tirx.Stmt:
        """Keeps what memory is to hold of one of the stores; with the last one, writes all of them."""
        number = next(place for place, each in self.places.items() if each is stmt)
        stored = spread(stored, ctx.width)
        name = ctx.fresh(f"{stmt.buffer.name}_{number}", "int32").name
        held = tirx.decl_buffer((ctx.width,), dtype_of(stored).partition("x")[0], name=name)
        place = span(index(0), ctx.width)
        self.kept[number] = tirx.BufferLoad(held, [place])
        parts = [tirx.AllocBuffer(held), tirx.BufferStore(held, stored, [place])]
        return sequence([*parts, *(self._written(ctx) if stmt is self.last else [])])

    def _written(self, ctx: LaneContext) -> list[tirx.Stmt]:
        first, width = self.places[0], ctx.width
        storage = ctx.storage(first.buffer)
        base = flat_index(storage, first.indices, ctx).base
        return [
            tirx.BufferStore(
                storage.data, self._vector(part * width, width), [span(base + part * width, width)]
            )
            for part in range(len(self.places))
        ]

    def _vector(self, start: int, width: int) -> Expr:
        """The elements that lie ``start`` behind the first one of all lanes, and those that follow."""
        count = len(self.places)
        owners = [divmod(start + number, count) for number in range(width)]
        made = self.kept[0]
        for place in range(1, count):
            chosen = [(width if own == place else 0) + lane for lane, own in owners]
            kept = [
                number if own < place else at
                for number, (at, (_, own)) in enumerate(zip(chosen, owners, strict=True))
            ]
            made = tirx.Shuffle(
                [made, self.kept[place]], [index(at) for at in (chosen if place == 1 else kept)]
            )
        return made


def sharings(block: Block, ctx: LaneContext) -> dict[Store, Sharing]:
    """The stores of a block that are written together."""
    free = ctx.lanes is not None and ctx.recorder is None and ctx.mask is None and ctx.first is None
    if not free or ctx.in_order:
        return {}
    found: dict[Store, Sharing] = {}
    stores = [stmt for stmt in block if isinstance(stmt, Store) and stmt not in ctx.accumulators]
    for buffer in dict.fromkeys(stmt.buffer for stmt in stores):
        own = [stmt for stmt in stores if stmt.buffer.same_as(buffer)]
        step = _step(own[0], ctx)
        for at in range(0, len(own) if step > 1 else 0, step):
            group = own[at : at + step]
            places = _places(group, step, ctx)
            if places is not None and _may_wait(block, group):
                found |= dict.fromkeys(group, Sharing(places, group[-1]))
    return found


def _step(store: Store, ctx: LaneContext) -> int:
    """How far the elements of lanes lie apart that other stores may fill up; else 1."""
    storage = ctx.storages.get(store.buffer)
    if storage is None or storage.layout is not None or storage.copies > 1 or ctx.lanes is None:
        return 1
    step = 0
    for at, stride in zip(store.indices, storage.strides, strict=True):
        linear, factor = linear_in(ctx.facts.inline(at), [ctx.lanes.var]), int_value(stride)
        own = int_value(linear[0]) if linear else None
        if own is None or (own and factor is None):
            return 1
        step += own * (factor or 0)
    return step if 1 < step <= WIDEST_GAP else 1


def _places(group: Sequence[Store], step: int, ctx: LaneContext) -> dict[int, Store] | None:
    """The stores by their places among ``step`` elements, all of which exist; None where they have others."""
    found: dict[int, Store] = {}
    rows = [tuple(ctx.facts.inline(at) for at in stmt.indices) for stmt in group]
    for stmt, row in zip(group, rows, strict=True):
        gap = int_value(ctx.facts.analyzer.simplify(row[-1] - rows[0][-1])) if row else None
        if gap is None or not same_all(row[:-1], rows[0][:-1]) or _step(stmt, ctx) != step:
            return None
        if open_bounds(stmt.buffer, stmt.indices, ctx) != []:
            return None
        found[gap] = stmt
    low = min(found)
    whole = sorted(found) == list(range(low, low + step))
    return {gap - low: stmt for gap, stmt in found.items()} if whole else None


def _may_wait(block: Block, group: Sequence[Store]) -> bool:
    """Whether nothing between the first and the last of stores, or in these, touches what they write."""
    numbers = [number for number, stmt in enumerate(block) if any(stmt is each for each in group)]
    between: Sequence[Stmt] = block[numbers[0] + 1 : numbers[-1] + 1]
    others = [stmt for stmt in between if not any(stmt is each for each in group)]
    held = {group[0].buffer}
    values = [expr for stmt in group[1:] for expr in expressions(stmt)]
    return not any(reads(expr, held) for expr in values) and all(
        held.isdisjoint(buffers(stmt)) for stmt in walk(tuple(others))
    )
