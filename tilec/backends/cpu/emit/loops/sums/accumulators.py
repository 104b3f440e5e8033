"""Accumulation over a vectorised loop: lanes and unrolled steps keep partial results in registers.

    for j: s = s + X[j]    ->    for v: p = p + X[v:+16]; q = q + X[v + 16:+16];    s = s + sum(p + q)

The order of additions changes by that, and depends on the loop and the target alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.functions import keeping_nan
from tilec.backends.cpu.emit.vectors.access import flat_index, store_element
from tilec.backends.cpu.emit.vectors.byte_products import byte_products
from tilec.backends.cpu.emit.vectors.first_lanes import are_first
from tilec.backends.cpu.products.blocks.totals import totals_of
from tilec.ir.extremes import DROPPING
from tilec.lowering.analysis.accumulations import Accumulation, identity
from tilec.lowering.emission.storage import compute_type, is_nan
from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


#: Independent partial vectors at most: what hides the latency of a floating-point addition on current cores.
SLOTS = 4
#: Sums whose lanes are worth adding up at once.
_MANY = 4


@dataclass(eq=False)
class Accumulator:
    """``origin`` has one element for all lanes; ``partial`` has ``slots`` vectors of ``width`` lanes,
    ``single`` is for steps of one lane. ``reach`` is how many lanes of ``partial`` steps have used so far,
    ``alone`` whether some had one lane."""

    origin: Accumulation
    width: int
    partial: Var
    single: Var
    slots: int = SLOTS
    reach: int = 0
    alone: bool = False

    def identity(self) -> Expr:
        """The compute value that changes nothing."""
        return identity(self.origin.kind, compute_type(self.origin.dtype))

    def combine(self, new: Expr, old: Expr, ctx: LaneContext) -> Expr:
        """``old`` with ``new`` taken in; a ``new`` that is no number does not count for max and min, or stays
        where they keep NaN."""
        kind = self.origin.kind
        if self.origin.nan_propagate:
            return keeping_nan(kind, new, old)
        return DROPPING[kind](new, old) if kind in DROPPING else ctx.taken_in(self.origin, new, old)

    def start(self) -> list[tirx.Stmt]:
        """Makes the partial results that steps have used, and sets them to the identity."""
        made: list[tirx.Stmt] = []
        if self.reach:
            made.append(tirx.AllocBuffer(self.partial))
        if self.alone:
            made.append(tirx.AllocBuffer(self.single))
        full = spread(self.identity(), self.vector)
        for first in range(0, self._lanes(), self.width):
            made.append(tirx.BufferStore(self.partial, full, [_ramp(first, self.vector)]))
        if self.alone:
            made.append(tirx.BufferStore(self.single, self.identity(), [tirx.const(0)]))
        return made

    def _lanes(self) -> int:
        """How many lanes of ``partial`` count: a power of two, as they are combined by halves."""
        return 1 << (self.reach - 1).bit_length() if self.reach else 0

    def step(self, ctx: LaneContext) -> tirx.Stmt:
        """Takes in the terms of the current lanes."""
        if ctx.width == 1:
            index, data = tirx.const(0), self.single
        else:
            index, data = _ramp(ctx.slot * self.width, ctx.width), self.partial
        self._note(ctx)
        return tirx.BufferStore(data, self._taken_in(tirx.BufferLoad(data, [index]), ctx), [index])

    def _taken_in(self, old: Expr, ctx: LaneContext) -> Expr:
        """``old`` with the terms of the current lanes."""
        if ctx.mask is None and ctx.first is None and self.origin.kind == "sum":
            products = byte_products(self.origin.term, ctx, old)
            if products is not None:
                return products
        term = spread(ctx.value(self.origin.term), ctx.width)
        if ctx.mask is not None:
            term = tirx.Select(ctx.mask, term, spread(self.identity(), ctx.width))
        made = self.combine(term, old, ctx)
        return made if ctx.first is None else tirx.Select(are_first(ctx.first, ctx.width), made, old)

    def _note(self, ctx: LaneContext) -> None:
        """Keeps what a step uses, but for one of a dry run."""
        if ctx.recorder is not None:
            return
        if ctx.width == 1:
            self.alone = True
        else:
            self.reach = max(self.reach, ctx.slot * self.width + ctx.width)

    @property
    def vector(self) -> int:
        """How many lanes of one vector count."""
        return min(self.width, self._lanes())

    def halved(self, count: int, ctx: LaneContext) -> list[tirx.Stmt]:
        """Combines the partial results into ``count`` lanes, a power of two."""
        steps: list[tirx.Stmt] = []
        left = self._lanes()
        while left > count:
            left //= 2
            low, high = (_at(self.partial, start, left) for start in (0, left))
            steps.append(tirx.BufferStore(self.partial, self.combine(high, low, ctx), [_ramp(0, left)]))
        return steps

    def finish(self, ctx: LaneContext) -> list[tirx.Stmt]:
        """Combines the partial results into the element."""
        return [*self.halved(1, ctx), *self.update(_at(self.partial, 0, 1), ctx)]

    def _totals(self, lanes: Expr) -> list[Expr]:
        """What the steps of one lane have come to, and those of more."""
        used = [(_at(self.single, 0, 1), self.alone), (lanes, self.reach)]
        return [total for total, is_used in used if is_used] or [self.identity()]

    def update(self, lanes: Expr, ctx: LaneContext) -> list[tirx.Stmt]:
        """Takes what the lanes have come to into the element."""
        storage = ctx.storage(self.origin.store.buffer)
        index = flat_index(storage, self.origin.store.indices, ctx)
        old = ctx.decode(tirx.BufferLoad(storage.data, [index]), storage.dtype)
        total = reduce(lambda new, old: self.combine(new, old, ctx), self._totals(lanes))
        drops = self.origin.kind != "sum" and not self.origin.nan_propagate
        if drops and storage.dtype.startswith(("float", "bfloat")):
            total = tirx.Select(is_nan(old), total, self.combine(total, old, ctx))
        else:
            total = self.combine(total, old, ctx)
        write = store_element(self.origin.store.buffer, self.origin.store.indices, total, ctx)
        return [write] if write is not None else []


def _ramp(start: int, lanes: int) -> Expr:
    base = tirx.const(start)
    return base if lanes == 1 else tirx.Ramp(base, tirx.const(1), lanes)


def _at(data: Var, start: int, lanes: int) -> Expr:
    return tirx.BufferLoad(data, [_ramp(start, lanes)])


def make_accumulators(found: Sequence[Accumulation], width: int, ctx: LaneContext) -> list[Accumulator]:
    """The accumulators of stores for vectors of ``width`` lanes, which fill half of the registers at most."""
    room = ctx.target.vector_registers // 2 // max(1, len(found))
    slots = min(SLOTS, 1 << (max(1, room).bit_length() - 1))
    return [_made(origin, width, slots, ctx) for origin in found]


def _made(origin: Accumulation, width: int, slots: int, ctx: LaneContext) -> Accumulator:
    dtype = compute_type(origin.dtype)
    name = ctx.fresh(f"{origin.store.buffer.name}_partial", "int32").name
    partial = tirx.decl_buffer((slots * width,), dtype, name=name)
    single = tirx.decl_buffer((1,), dtype, name=f"{name}_single")
    return Accumulator(origin, width, partial, single, slots)


def finish_all(found: Sequence[Accumulator], ctx: LaneContext) -> list[tirx.Stmt]:
    """Combines the partial results of accumulators into their elements: the lanes of many sums of one type at
    once."""
    alike: dict[tuple[str, int], list[Accumulator]] = {}
    for item in found:
        if item.origin.kind == "sum" and item.reach:
            alike.setdefault((str(item.partial.dtype), item.vector), []).append(item)
    steps: list[tirx.Stmt] = []
    done: set[Accumulator] = set()
    for (_, lanes), items in alike.items():
        for group in _groups(items, lanes):
            steps += _finish_group(group, lanes, ctx)
            done.update(group)
    return [*steps, *(step for item in found if item not in done for step in item.finish(ctx))]


def _groups(items: Sequence[Accumulator], lanes: int) -> Iterator[Sequence[Accumulator]]:
    """Powers of two of them, no more than lanes, from those that are many on."""
    while len(items) >= _MANY <= lanes:
        size = min(lanes, 1 << (len(items).bit_length() - 1))
        yield items[:size]
        items = items[size:]


def _finish_group(items: Sequence[Accumulator], lanes: int, ctx: LaneContext) -> list[tirx.Stmt]:
    steps = [step for item in items for step in item.halved(lanes, ctx)]
    vectors = [_at(item.partial, 0, lanes) for item in items]
    totals = totals_of(vectors, steps, lambda one, other: ctx.taken_in(items[0].origin, one, other))
    data = items[0].partial
    steps.append(tirx.BufferStore(data, totals, [_ramp(0, len(items))]))
    return [
        *steps,
        *(step for number, item in enumerate(items) for step in item.update(_at(data, number, 1), ctx)),
    ]
