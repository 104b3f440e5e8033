"""What threads tell each other: barriers, shuffles, votes, and reductions over threads."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.device import exchange
from tilec.backends.cuda.device.helper import C_NAMES
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import (
    block_barrier,
    call,
    emit,
    named_barrier,
    need_named_barriers,
    store_element,
)
from tilec.backends.cuda.nodes import JoinThreads, WarpSync
from tilec.errors import UnsupportedError
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes.threads import SHUFFLES, WARP_REDUCTIONS, Lane, Sync
from tilec.ir.places import place_of
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import compute_type, convert

if TYPE_CHECKING:
    from tvm.ir import Expr

_SHUFFLES = {"shfl": "", "shfl_xor": "xor_", "shfl_up": "up_", "shfl_down": "down_"}


@emit.register(Sync)
def _emit_sync(stmt: Sync, ctx: DeviceContext) -> tirx.Stmt:
    if stmt.kind == "warp":
        return call(exchange.warp_sync(None).call())
    if stmt.barrier is None or stmt.count is None:
        return block_barrier(ctx)
    need_named_barriers(f"T.sync_threads({stmt.barrier}, {stmt.count})", "leave out its arguments", ctx)
    return named_barrier(stmt.barrier, stmt.count)


@emit.register(WarpSync)
def _emit_warp_sync(stmt: WarpSync, ctx: DeviceContext) -> tirx.Stmt:
    return call(exchange.warp_sync(stmt.mask).call())


@emit.register(Lane)
def _emit_lane(stmt: Lane, ctx: DeviceContext) -> tirx.Stmt:
    if stmt.kind in WARP_REDUCTIONS:
        return _warp_reduction(stmt, ctx)
    value = _lane_value(stmt, ctx)
    value = convert(value, compute_type(dtype_of(stmt.var)))
    return tirx.Bind(ctx.define(stmt.var, value), value)


def _lane_value(stmt: Lane, ctx: DeviceContext) -> Expr:
    """What a thread gets by a shuffle or a vote."""
    operands = [ctx.value(operand) for operand in stmt.operands]
    mask = tirx.const(exchange.ALL_LANES, "uint32") if stmt.mask is None else ctx.value(stmt.mask)
    if stmt.kind in SHUFFLES:
        value, lane = operands
        return shuffled(_SHUFFLES[stmt.kind], value, convert(lane, "int32"), stmt.width, mask)
    if stmt.kind == "active":
        return exchange.ACTIVE.call()
    return _vote(stmt.kind, operands[0], mask)


def _vote(kind: str, operand: Expr, mask: Expr) -> Expr:
    """A vote of a warp."""
    if kind == "match_all":
        like = _vote("match_any", operand, mask)
        return tirx.Select(tirx.EQ(like, mask), mask, tirx.const(0, "uint32"))
    value = operand if dtype_of(operand) in C_NAMES else convert(operand, "int32")
    return exchange.vote(kind, dtype_of(value)).call(mask, value)


def shuffled(word: str, value: Expr, lane: Expr, width: int, mask: Expr) -> Expr:
    """``value`` of another lane: ``word`` is that of CUDA's function."""
    own = dtype_of(value)
    carried = value if own in C_NAMES else convert(value, "int32")
    made = exchange.shuffle(word, dtype_of(carried), width).call(mask, carried, lane)
    return convert(made, own)


def _warp_reduction(stmt: Lane, ctx: DeviceContext) -> tirx.Stmt:
    """Five exchanges with lanes whose numbers differ in one bit."""
    value = ctx.value(stmt.operands[0])
    mask = tirx.const(exchange.ALL_LANES, "uint32") if stmt.mask is None else ctx.value(stmt.mask)
    dtype, parts = dtype_of(value), []
    step = WARP // 2
    while step:
        name = ctx.fresh("joined", dtype)
        parts.append(tirx.Bind(name, value))
        value = _combined(stmt.kind, name, shuffled("xor_", name, tirx.const(step, "int32"), WARP, mask))
        step //= 2
    return sequence([*parts, tirx.Bind(ctx.define(stmt.var, value), value)])


def _combined(kind: str, left: Expr, right: Expr) -> Expr:
    if kind == "warp_sum":
        return left + right
    kinds = {"warp_max": tirx.Max, "warp_min": tirx.Min, "warp_bitand": tirx.BitwiseAnd,
             "warp_bitor": tirx.BitwiseOr}  # fmt: skip
    return kinds[kind](left, right)


def _refuse_in_group(stmt: JoinThreads, ctx: DeviceContext) -> None:
    if ctx.group is None:
        return
    raise UnsupportedError(
        "a vote or a reduction of the whole block in code of some of its threads",
        place=place_of(stmt),
        why="the other threads of the block never come to it",
        remedy="move it out of T.ws, or use warp votes and shuffles",
    )


# ---- reductions over threads ----


@emit.register(JoinThreads)
def _emit_join(stmt: JoinThreads, ctx: DeviceContext) -> tirx.Stmt:
    dtype = compute_type(str(stmt.buffer.dtype))
    total = tirx.decl_buffer((1,), dtype, name=ctx.fresh("joined", "int32").name, scope="local")
    zero = [tirx.const(0, "int32")]
    own = tirx.BufferLoad(total, zero)
    first = tirx.if_then_else(ctx.value(stmt.cond), ctx.value(stmt.value), ctx.value(stmt.identity))
    parts: list[tirx.Stmt] = [tirx.AllocBuffer(total), tirx.BufferStore(total, first, zero)]
    mask = tirx.const(exchange.ALL_LANES, "uint32")
    for bit in stmt.masks:
        other = ctx.fresh("other", dtype)
        parts.append(tirx.Bind(other, shuffled("xor_", own, tirx.const(bit, "int32"), WARP, mask)))
        parts.append(tirx.BufferStore(total, _pair(stmt, own, other, ctx), zero))
    if stmt.scratch is not None:
        _refuse_in_group(stmt, ctx)
        parts += _through_scratch(stmt, total, ctx)
    bits = ctx.encode(own, str(stmt.buffer.dtype))
    stored = store_element(stmt.buffer, stmt.indices, bits, ctx)
    return sequence([*parts, *([stored] if stored is not None else [])])


def _pair(stmt: JoinThreads, left: Expr, right: Expr, ctx: DeviceContext) -> Expr:
    """Two values taken together."""
    with ctx.scope():
        ctx.env[stmt.vars[0]], ctx.env[stmt.vars[1]] = left, right
        return ctx.value(stmt.combine)


def _through_scratch(stmt: JoinThreads, total: tirx.Var, ctx: DeviceContext) -> list[tirx.Stmt]:
    """Each thread leaves its value and reads those of the threads that differ in the digits."""
    storage = ctx.storage(stmt.scratch)
    thread, zero = ctx.block_thread, [tirx.const(0, "int32")]
    assert thread is not None
    own = tirx.BufferLoad(total, zero)
    parts = [tirx.BufferStore(storage.data, ctx.encode(own, storage.dtype), [thread]), block_barrier(ctx)]
    base: Expr = thread
    for stride, extent in stmt.digits.parts:
        digit = tirx.truncmod(tirx.truncdiv(thread, tirx.const(stride, "int32")), tirx.const(extent, "int32"))
        base = base - digit * tirx.const(stride, "int32")
    start = ctx.fresh("first", "int32")
    last = int(storage.shape[0]) - 1 - sum(stride * (extent - 1) for stride, extent in stmt.digits.parts)
    parts.append(
        tirx.Bind(start, tirx.Max(tirx.Min(base, tirx.const(last, "int32")), tirx.const(0, "int32")))
    )
    steps = [[stride * value for value in range(extent)] for stride, extent in stmt.digits.parts]
    for number, offsets in enumerate(itertools.product(*steps)):
        place = start + tirx.const(sum(offsets), "int32")
        other = ctx.fresh("other", str(total.dtype))
        parts.append(tirx.Bind(other, ctx.decode(tirx.BufferLoad(storage.data, [place]), storage.dtype)))
        value = other if number == 0 else _pair(stmt, own, other, ctx)
        parts.append(tirx.BufferStore(total, value, zero))
    return parts
