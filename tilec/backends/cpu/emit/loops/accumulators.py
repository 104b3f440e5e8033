"""Accumulation over a vectorised loop: lanes and unrolled steps keep partial results in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.access import flat_index, store_element
from tilec.backends.cpu.emit.functions import keeping_nan
from tilec.ir.extremes import DROPPING
from tilec.lowering.analysis.accumulations import Accumulation, identity
from tilec.lowering.emission.storage import compute_type, is_nan
from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


#: Independent partial vectors: what hides the latency of a floating-point addition on current cores.
SLOTS = 4


@dataclass(eq=False)
class Accumulator:
    """``origin`` has one element for all lanes; ``partial`` has `SLOTS` vectors of ``width`` lanes,
    ``single`` is for steps of one lane."""

    origin: Accumulation
    width: int
    partial: Var
    single: Var
    slots: int = SLOTS

    def identity(self) -> Expr:
        """The compute value that changes nothing."""
        return identity(self.origin.kind, compute_type(self.origin.dtype))

    def combine(self, new: Expr, old: Expr) -> Expr:
        """``old`` with ``new`` taken in; a ``new`` that is no number does not count for max and min, or stays
        where they keep NaN."""
        kind = self.origin.kind
        if self.origin.nan_propagate:
            return keeping_nan(kind, new, old)
        return new + old if kind == "sum" else DROPPING[kind](new, old)

    def start(self) -> list[tirx.Stmt]:
        """Makes the partial results and sets them to the identity."""
        full = spread(self.identity(), self.width)
        parts = [
            tirx.BufferStore(self.partial, full, [_ramp(slot * self.width, self.width)])
            for slot in range(SLOTS)
        ]
        one = tirx.BufferStore(self.single, self.identity(), [tirx.const(0)])
        return [tirx.AllocBuffer(self.partial), tirx.AllocBuffer(self.single), *parts, one]

    def step(self, ctx: LaneContext) -> tirx.Stmt:
        """Takes in the terms of the current lanes."""
        term = spread(ctx.value(self.origin.term), ctx.width)
        if ctx.mask is not None:
            term = tirx.Select(ctx.mask, term, spread(self.identity(), ctx.width))
        if ctx.width == 1:
            index, data = tirx.const(0), self.single
        else:
            index, data = _ramp(ctx.slot * self.width, ctx.width), self.partial
        return tirx.BufferStore(data, self.combine(term, tirx.BufferLoad(data, [index])), [index])

    def finish(self, ctx: LaneContext) -> list[tirx.Stmt]:
        """Combines the partial results into the element."""
        steps: list[tirx.Stmt] = []
        count = SLOTS * self.width
        while count > 1:
            count //= 2
            low, high = (_at(self.partial, start, count) for start in (0, count))
            index = _ramp(0, count)
            steps.append(tirx.BufferStore(self.partial, self.combine(high, low), [index]))
        return [*steps, *self._update(ctx)]

    def _update(self, ctx: LaneContext) -> list[tirx.Stmt]:
        storage = ctx.storage(self.origin.store.buffer)
        index = flat_index(storage, self.origin.store.indices, ctx)
        old = ctx.decode(tirx.BufferLoad(storage.data, [index]), storage.dtype)
        total = self.combine(_at(self.single, 0, 1), _at(self.partial, 0, 1))
        drops = self.origin.kind != "sum" and not self.origin.nan_propagate
        if drops and storage.dtype.startswith(("float", "bfloat")):
            total = tirx.Select(is_nan(old), total, self.combine(total, old))
        else:
            total = self.combine(total, old)
        write = store_element(self.origin.store.buffer, self.origin.store.indices, total, ctx)
        return [write] if write is not None else []


def _ramp(start: int, lanes: int) -> Expr:
    base = tirx.const(start)
    return base if lanes == 1 else tirx.Ramp(base, tirx.const(1), lanes)


def _at(data: Var, start: int, lanes: int) -> Expr:
    return tirx.BufferLoad(data, [_ramp(start, lanes)])


def make_accumulator(origin: Accumulation, width: int, ctx: LaneContext) -> Accumulator:
    """The accumulator of one store for vectors of ``width`` lanes."""
    dtype = compute_type(origin.dtype)
    name = ctx.fresh(f"{origin.store.buffer.name}_partial", "int32").name
    partial = tirx.decl_buffer((SLOTS * width,), dtype, name=name)
    single = tirx.decl_buffer((1,), dtype, name=f"{name}_single")
    return Accumulator(origin, width, partial, single)
