"""A running sum, or maximum, along a loop that may run in vectors: lanes of a vector are combined in a step
for each power of two, and the vector with what came before it (W. D. Hillis, G. L. Steele, Data parallel
algorithms, 1986)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.access import store_element
from tilec.backends.cpu.emit.vectors.lanes import Lanes
from tilec.backends.cpu.products.tir import get, index, put
from tilec.ir.exprs import dtype_of, int_value, loads, same_all
from tilec.ir.extremes import DROPPING
from tilec.ir.nodes import Store
from tilec.lowering.analysis.accumulations import accumulation, identity
from tilec.lowering.emission.storage import compute_type, element_bytes
from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import For
    from tilec.lowering.analysis.accumulations import Accumulation

_FLOATS = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class Running:
    """A loop whose trips take the term of ``total`` into a variable each, and store that to ``target``."""

    loop: For
    total: Accumulation
    target: Store


def running(loop: For) -> Running | None:
    """``loop`` as a scan of floats whose trips may be lanes; None where it is none."""
    if loop.kind != "vectorized" or len(loop.body) != 2:
        return None
    taken, stored = loop.body
    if not isinstance(taken, Store) or not isinstance(stored, Store) or taken.buffer.scope() != "local.var":
        return None
    total, source = accumulation(taken), getattr(_held(stored), "source", None)
    if total is None or total.nan_propagate or total.dtype not in _FLOATS:
        return None
    copies = source is not None and source.same_as(taken.buffer)
    return Running(loop, total, stored) if copies and _reads_own(total, stored) else None


def _held(stored: Store) -> Expr:
    """What a store takes, before it is rounded to a small float."""
    value = stored.value
    rounds = isinstance(value, tirx.Cast) and compute_type(dtype_of(value)) == dtype_of(value.value)
    return value.value if rounds else value


def _reads_own(total: Accumulation, stored: Store) -> bool:
    """Whether no term reads what another trip stores."""
    items = [load for load in loads(total.term) if load.source.same_as(stored.buffer)]
    return all(same_all(tuple(item.indices), stored.indices) for item in items)


def emit_running(scan: Running, ctx: LaneContext) -> tirx.Stmt:
    """Whole vectors, then trips one by one. NotVectorisable where there is no vector form."""
    loop, dtype = scan.loop, dtype_of(scan.loop.var)
    size = tirx.const(ctx.target.lanes(8 * element_bytes(scan.total.dtype)), dtype)
    low, high = ctx.value(loop.start), ctx.value(loop.stop)
    ctx.facts.bind_range(loop.var, loop.start, loop.stop)
    zero, trips = tirx.const(0, dtype), ctx.fresh(f"{loop.var.name}_trips", dtype)
    count = ctx.facts.analyzer.simplify(tirx.truncdiv(tirx.max(high - low, zero), size))
    whole = _vectors(scan, low, trips, size, ctx)
    after = low + (trips if int_value(count) is None else count) * size
    return tirx.SeqStmt([tirx.Bind(trips, count), *whole, *_one_by_one(loop, after, high, ctx)])


def _vectors(scan: Running, low: Expr, trips: Expr, size: Expr, ctx: LaneContext) -> list[tirx.Stmt]:
    """``trips`` vectors of ``size`` lanes. The variable's value is in all lanes of one meanwhile."""
    var, width = scan.loop.var, int(size.value)
    counter = ctx.fresh(var.name, dtype_of(var))
    carry = tirx.decl_buffer((width,), scan.total.dtype, name=ctx.fresh("carry", "int32").name)
    variable = ctx.storage(scan.total.store.buffer).data
    with ctx.scope(), ctx.lane_scope(Lanes(var, low + counter * size, width)):
        vector = _one_vector(scan, carry, width, ctx)
    return [
        tirx.AllocBuffer(carry),
        put(carry, index(0), spread(get(variable, index(0), 1), width)),
        ctx.loop(counter, tirx.const(0, dtype_of(var)), trips, vector),
        put(variable, index(0), get(carry, index(0), 1)),
    ]


def _one_vector(scan: Running, carry: Var, width: int, ctx: LaneContext) -> tirx.Stmt:
    """Takes in the terms of the current lanes and stores what each then comes to."""
    total, stored = scan.total, scan.target
    nothing = _nothing(total)
    held = tirx.decl_buffer((width,), total.dtype, name=ctx.fresh("lanes", "int32").name)
    own, so_far = (get(buffer, index(0), width) for buffer in (held, carry))
    steps = [tirx.AllocBuffer(held), put(held, index(0), _numbers(total, ctx, width))]
    for distance in (1 << power for power in range((width - 1).bit_length())):
        moved = _moved(own, distance, nothing, width)
        steps.append(put(held, index(0), ctx.taken_in(total, moved, own)))
    write = store_element(stored.buffer, stored.indices, ctx.taken_in(total, so_far, own), ctx)
    last = tirx.Shuffle([own], [index(width - 1)] * width)
    steps += [write] if write is not None else []
    return tirx.SeqStmt([*steps, put(carry, index(0), ctx.taken_in(total, so_far, last))])


def _nothing(total: Accumulation) -> Expr:
    """What changes no lane. Of sums it is -0, which keeps -0, too; and LLVM moves lanes up to zeros by
    `vexpandps`, which takes Zen 4 longer than the sums."""
    return tirx.const(-0.0, total.dtype) if total.kind == "sum" else identity(total.kind, total.dtype)


def _numbers(total: Accumulation, ctx: LaneContext, width: int) -> Expr:
    """The terms of all lanes; of a maximum, what is no number as the identity: comparisons take one side."""
    terms = spread(ctx.value(total.term), width)
    if total.kind == "sum":
        return terms
    return DROPPING[total.kind](terms, spread(identity(total.kind, total.dtype), width))


def _moved(vector: Expr, distance: int, nothing: Expr, width: int) -> Expr:
    """Each lane's neighbour so far below, ``nothing`` where there is none."""
    order = [width - distance + lane for lane in range(width)]
    return tirx.Shuffle([spread(nothing, width), vector], [index(lane) for lane in order])


def _one_by_one(loop: For, start: Expr, stop: Expr, ctx: LaneContext) -> list[tirx.Stmt]:
    """The trips from ``start`` on."""
    left = ctx.facts.analyzer.simplify(stop - start)
    if int_value(left) is not None and int(left) <= 0:
        return []
    with ctx.scope():
        new = ctx.define(loop.var)
        body = ctx.block(loop.body)
    return [] if body is None else [ctx.loop(new, start, left, body)]
