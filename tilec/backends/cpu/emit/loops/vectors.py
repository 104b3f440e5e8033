"""The innermost loop of a nest: whole vectors, then a tail; single elements where there is no vector form."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.collisions import barrier, shared_elements
from tilec.backends.cpu.emit.loops.last_vector import suits_last_terms, suits_last_vector
from tilec.backends.cpu.emit.loops.rolled import unknown
from tilec.backends.cpu.emit.numbers.rounded_pairs import in_pairs, rounds_pairs
from tilec.backends.cpu.emit.vectors.aligned import is_multiple
from tilec.backends.cpu.emit.vectors.lanes import Lanes, NotVectorisable
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Parallel, walk
from tilec.ir.roads import Loss
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block


def emit_lanes(
    var: Var, start: Expr, stop: Expr, body: Block, width: int, ctx: LaneContext, noted: bool = True
) -> tirx.Stmt | None:
    """``body`` for ``var`` in [start, stop) (TIR expressions) in vectors of ``width`` and narrower ones.
    A loop around others has no lanes. ``noted``: how it was done is worth a note."""
    extent = ctx.facts.analyzer.simplify(stop - start)
    length = int_value(extent)
    if length is not None and length <= 0:
        return None
    if any(isinstance(stmt, Parallel) for stmt in walk(body)):
        return _repeat(var, start, extent, 1, 1, body, ctx)
    shared = shared_elements(var, body, ctx)
    if shared:
        why = Loss(
            "vectors",
            "its iterations share elements",
            "write each element in one iteration, or reduce along it",
        )
        ctx.take(body, "scalar", f"loop over {var.name} is scalar", why)
        return _repeat(var, start, extent, 1, 1, body, ctx, barrier(shared, ctx))
    try:
        if length is not None:
            vectors = _static(var, start, length, body, width, ctx)
        else:
            vectors = _dynamic(var, start, extent, body, width, ctx)
        widest = width if length is None else min(width, 1 << (length.bit_length() - 1))
        if noted and widest > 1 and vectors is not None:
            ctx.take(body, "vectors", f"loop over {var.name} in vectors of {widest} lanes")
        return vectors
    except NotVectorisable as reason:
        if ctx.ends:
            raise
        if noted:
            loss = Loss("vectors", str(reason), reason.remedy)
            ctx.take(body, "scalar", f"loop over {var.name} is scalar", loss)
        return _repeat(var, start, extent, 1, 1, body, ctx)


def _static(
    var: Var, start: Expr, length: int, body: Block, width: int, ctx: LaneContext
) -> tirx.Stmt | None:
    parts, done = [], 0
    while width >= 1:
        for slots in _unrolling(body, width, ctx):
            trips = (length - done) // (width * slots)
            if trips > 0:
                begin = start + tirx.const(done, dtype_of(var))
                parts.append(_repeat(var, begin, tirx.const(trips, dtype_of(var)), width, slots, body, ctx))
                done += trips * width * slots
        width //= 2
    return sequence([part for part in parts if part is not None])


def _dynamic(
    var: Var, start: Expr, extent: Expr, body: Block, width: int, ctx: LaneContext
) -> tirx.Stmt | None:
    """Run-time extents: vectors, then one of the lanes that are left where there are few vectors, or short
    vectors of four and single elements."""
    if suits_last_vector(extent, body, width, ctx):
        with suppress(NotVectorisable):
            return _with_last_vector(var, start, extent, body, width, ctx)
    if suits_last_terms(body, width, ctx):
        with suppress(NotVectorisable), ExitStack() as known:
            return _parts(var, start, extent, body, width, ctx, known, ends=True)
    with ExitStack() as known:
        return _parts(var, start, extent, body, width, ctx, known)


def _parts(
    var: Var,
    start: Expr,
    extent: Expr,
    body: Block,
    width: int,
    ctx: LaneContext,
    known: ExitStack,
    ends: bool = False,
) -> tirx.Stmt | None:
    """Vectors of each width, from where the wider ones end: at a multiple of these, which is ``known`` behind
    them. Those of the widest alone and one of the lanes that are left where it ``ends`` the loop. Of
    loops that add up, those behind the first, which have few trips, stay loops."""
    parts: list[tirx.Stmt] = []
    dtype = dtype_of(var)
    widths = [width] if ends else _dynamic_widths(width)
    steps = [(lanes, slots) for lanes in widths for slots in _unrolling(body, lanes, ctx)]
    for lanes, slots in steps:
        size = tirx.const(lanes * slots, dtype)
        trips = ctx.fresh(f"{var.name}_trips", dtype)
        with ctx.rolled_scope(ctx.rolled or bool(parts and ctx.accumulators)):
            part = _repeat(var, start, trips, lanes, slots, body, ctx)
        if part is None:
            return None
        parts += [tirx.Bind(trips, tirx.truncdiv(extent, size)), part]
        next_start, next_extent = ctx.fresh(f"{var.name}_at", dtype), ctx.fresh(f"{var.name}_left", dtype)
        parts += [tirx.Bind(next_start, start + trips * size), tirx.Bind(next_extent, extent - trips * size)]
        if is_multiple(start, lanes, ctx):
            known.enter_context(ctx.multiples_scope([next_start], lanes))
        start, extent = next_start, next_extent
    if ends:
        parts.append(_last(var, start, extent, body, width, ctx))
    return sequence(parts)


def _last(var: Var, start: Expr, left: Expr, body: Block, width: int, ctx: LaneContext) -> tirx.Stmt:
    """The vector of which ``left`` lanes are left, if any."""
    with ctx.first_scope(tirx.Cast("int32", left)):
        last = _one_vector(var, start, width, 0, body, ctx)
    return tirx.IfThenElse(left > 0, last if last is not None else tirx.Evaluate(tirx.const(0)), None)


def _with_last_vector(
    var: Var, start: Expr, extent: Expr, body: Block, width: int, ctx: LaneContext
) -> tirx.Stmt | None:
    dtype = dtype_of(var)
    trips, left = ctx.fresh(f"{var.name}_trips", dtype), ctx.fresh(f"{var.name}_left", dtype)
    whole = _repeat(var, start, trips, width, 1, body, ctx)
    with ctx.first_scope(tirx.Cast("int32", left)):
        last = _one_vector(var, start + trips * width, width, 0, body, ctx)
    if whole is None or last is None:
        return None
    size = tirx.const(width, dtype)
    return tirx.SeqStmt(
        [
            tirx.Bind(trips, tirx.truncdiv(extent, size)),
            whole,
            tirx.Bind(left, extent - trips * size),
            tirx.IfThenElse(left > 0, last, None),
        ]
    )


def _dynamic_widths(width: int) -> list[int]:
    return [width, 4, 1] if width > 4 else [width, 1] if width > 1 else [1]


def _unrolling(body: Block, width: int, ctx: LaneContext) -> tuple[int, ...]:
    """How many vectors a trip handles: several where partial results are independent, two that are rounded
    at once."""
    few = 2 if rounds_pairs(body, width, ctx) else 1
    slots = max((item.slots for item in ctx.accumulators.values() if item.width == width), default=few)
    return (slots, 1) if slots > 1 else (1,)


def _repeat(
    var: Var,
    start: Expr,
    trips: Expr,
    width: int,
    slots: int,
    body: Block,
    ctx: LaneContext,
    before: Sequence[tirx.Stmt] = (),
) -> tirx.Stmt | None:
    """``trips`` times ``before`` and ``slots`` vectors of ``width`` lanes from ``start`` on."""
    dtype = dtype_of(var)
    once = int_value(trips) == 1
    counter = ctx.fresh(var.name, dtype)
    first = start if once else start + counter * tirx.const(width * slots, dtype)
    parts = []
    for slot in range(slots):
        base = first + tirx.const(slot * width, dtype)
        part = _one_vector(var, ctx.facts.analyzer.simplify(base), width, slot, body, ctx)
        if part is None:
            return None
        parts.append(part)
    inner = sequence([*before, *(in_pairs(parts, ctx) if width > 1 else parts)])
    if once or inner is None:
        return inner
    return ctx.loop(counter, tirx.const(0, dtype), _rolled(trips, width * slots, width, ctx), inner)


def _rolled(trips: Expr, step: int, width: int, ctx: LaneContext) -> Expr:
    """``trips``, hidden from LLVM where as many vectors are more than there are registers."""
    known = int_value(trips)
    if known is None or width == 1 or known * step <= ctx.target.vector_registers * width:
        return trips
    return unknown(known, dtype_of(trips), ctx.functions)


def _one_vector(
    var: Var, base: Expr, width: int, slot: int, body: Block, ctx: LaneContext
) -> tirx.Stmt | None:
    ctx.slot = slot
    with ctx.scope():
        if width > 1:
            with ctx.lane_scope(Lanes(var, base, width, body)):
                return ctx.block(body)
        new = ctx.define(var)
        inner = ctx.block(body)
        return None if inner is None else tirx.SeqStmt([tirx.Bind(new, base), inner])
