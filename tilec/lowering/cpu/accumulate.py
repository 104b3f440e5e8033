"""Accumulation over a vectorised loop: lanes and unrolled steps keep partial results in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Bind, Block, If, Store, walk
from tilec.lowering.cpu.access import flat_index, store_element
from tilec.lowering.cpu.storage import compute_type, decode, is_nan, spread
from tilec.lowering.exprs import loads, same_all, uses
from tilec.lowering.facts import Facts

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.cpu.context import Context

#: Independent partial vectors: what hides the latency of a floating-point addition on current cores.
SLOTS = 4

_KINDS = {tirx.Add: "sum", tirx.Max: "max", tirx.Min: "min"}


@dataclass(eq=False)
class Accumulator:
    """``store`` is ``element = combine(element, term)`` with one element for all lanes.

    ``partial`` has `SLOTS` vectors of ``width`` lanes, ``single`` is for steps of one lane."""

    store: Store
    kind: str
    term: Expr
    width: int
    partial: Var
    single: Var
    slots: int = SLOTS

    def identity(self) -> Expr:
        """The value that changes nothing."""
        dtype = compute_type(str(self.store.buffer.dtype))
        if self.kind == "sum":
            return tirx.const(0, dtype)
        infinite = dtype.startswith("float")
        if self.kind == "max":
            return tirx.const(float("-inf"), dtype) if infinite else tirx.min_value(dtype)
        return tirx.const(float("inf"), dtype) if infinite else tirx.max_value(dtype)

    def combine(self, new: Expr, old: Expr) -> Expr:
        """``old`` with ``new`` taken in; a ``new`` that is no number does not count for max and min."""
        kind = {"sum": tirx.Add, "max": tirx.Max, "min": tirx.Min}[self.kind]
        return kind(new, old)

    def start(self) -> list[tirx.Stmt]:
        """Makes the partial results and sets them to the identity."""
        full = spread(self.identity(), self.width)
        parts = [
            tirx.BufferStore(self.partial, full, [_ramp(slot * self.width, self.width)])
            for slot in range(SLOTS)
        ]
        one = tirx.BufferStore(self.single, self.identity(), [tirx.const(0)])
        return [tirx.AllocBuffer(self.partial), tirx.AllocBuffer(self.single), *parts, one]

    def step(self, ctx: Context) -> tirx.Stmt:
        """Takes in the terms of the current lanes."""
        term = spread(ctx.value(self.term), ctx.width)
        if ctx.mask is not None:
            term = tirx.Select(ctx.mask, term, spread(self.identity(), ctx.width))
        if ctx.width == 1:
            index, data = tirx.const(0), self.single
        else:
            index, data = _ramp(ctx.slot * self.width, ctx.width), self.partial
        return tirx.BufferStore(data, self.combine(term, tirx.BufferLoad(data, [index])), [index])

    def finish(self, ctx: Context) -> list[tirx.Stmt]:
        """Combines the partial results into the element."""
        steps: list[tirx.Stmt] = []
        count = SLOTS * self.width
        while count > 1:
            count //= 2
            low, high = (_at(self.partial, start, count) for start in (0, count))
            index = _ramp(0, count)
            steps.append(tirx.BufferStore(self.partial, self.combine(high, low), [index]))
        return [*steps, *self._update(ctx)]

    def _update(self, ctx: Context) -> list[tirx.Stmt]:
        storage = ctx.storage(self.store.buffer)
        index = flat_index(storage, self.store.indices, ctx)
        old = decode(tirx.BufferLoad(storage.data, [index]), storage.dtype)
        total = self.combine(_at(self.single, 0, 1), _at(self.partial, 0, 1))
        if self.kind != "sum" and storage.dtype.startswith(("float", "bfloat")):
            total = tirx.Select(is_nan(old), total, self.combine(total, old))
        else:
            total = self.combine(total, old)
        write = store_element(self.store.buffer, self.store.indices, total, ctx)
        return [write] if write is not None else []


def _ramp(start: int, lanes: int) -> Expr:
    base = tirx.const(start)
    return base if lanes == 1 else tirx.Ramp(base, tirx.const(1), lanes)


def _at(data: Var, start: int, lanes: int) -> Expr:
    return tirx.BufferLoad(data, [_ramp(start, lanes)])


def find_accumulations(body: Block, var: Var, facts: Facts) -> list[tuple[Store, str, Expr]]:
    """The stores of ``body`` (also under If) that accumulate the iterations over ``var`` into one element
    of a tile that nothing else in ``body`` touches: (store, kind, term)."""
    found = []
    for store in _plain_stores(body):
        if any(uses(facts.inline(index), (var,)) for index in store.indices):
            continue
        parts = _accumulation(store)
        if parts is not None and _touches(body, store.buffer) == 2:
            found.append((store, *parts))
    return found


def _plain_stores(block: Block) -> list[Store]:
    stores = []
    for stmt in block:
        if isinstance(stmt, Store):
            stores.append(stmt)
        if isinstance(stmt, If):
            stores += _plain_stores(stmt.then) + _plain_stores(stmt.orelse)
    return stores


def _accumulation(store: Store) -> tuple[str, Expr] | None:
    value = store.value
    if isinstance(value, tirx.Cast) and compute_type(str(store.buffer.dtype)) == "float32":
        value = value.value
    kind = _KINDS.get(type(value))
    if kind is None or store.buffer.scope().startswith("global"):
        return None
    for old, term in ((value.a, value.b), (value.b, value.a)):
        if _reads_back(old, store) and not any(load.source.same_as(store.buffer) for load in loads(term)):
            return kind, term
    return None


def _reads_back(expr: Expr, store: Store) -> bool:
    if isinstance(expr, tirx.Cast) and compute_type(str(store.buffer.dtype)) == "float32":
        expr = expr.value
    source = getattr(expr, "source", None)
    return (
        source is not None and source.same_as(store.buffer) and same_all(tuple(expr.indices), store.indices)
    )


def _touches(block: Block, buffer: Var) -> int:
    """How often ``buffer`` is read or written in ``block``."""
    count = 0
    for stmt in walk(block):
        count += isinstance(stmt, Store) and stmt.buffer.same_as(buffer)
        count += sum(load.source.same_as(buffer) for expr in expressions(stmt) for load in loads(expr))
    return count


def expressions(stmt: object) -> tuple[Expr, ...]:
    """The expressions directly in a statement of a loop body."""
    if isinstance(stmt, Store):
        return (stmt.value, *stmt.indices)
    if isinstance(stmt, Bind):
        return (stmt.value,)
    if isinstance(stmt, Alloc):
        return (stmt.init,) if stmt.init is not None else ()
    names = ("cond", "start", "stop", "step")
    return tuple(getattr(stmt, name) for name in names if hasattr(stmt, name))


def make_accumulator(store: Store, kind: str, term: Expr, width: int, ctx: Context) -> Accumulator:
    """The accumulator of one store for vectors of ``width`` lanes."""
    dtype = compute_type(str(store.buffer.dtype))
    name = ctx.fresh(f"{store.buffer.name}_partial", "int32").name
    partial = tirx.decl_buffer((SLOTS * width,), dtype, name=name)
    single = tirx.decl_buffer((1,), dtype, name=f"{name}_single")
    return Accumulator(store, kind, term, width, partial, single)
