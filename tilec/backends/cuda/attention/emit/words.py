"""Device code of fragments that are held as words: pairs of 16 bits, four neighbours along K of 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import PairLoop
from tilec.backends.cuda.device.floats import SMALL_PAIRED, pack_small
from tilec.backends.cuda.device.matrices import QUAD
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.loop_digits import Part
from tilec.backends.cuda.emit.loops.thread_loop import Iterations, over_layout
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.warp_roles.emit.build import i32, u32
from tilec.ir.exprs import cast_to, dtype_of, int_value
from tilec.ir.nodes import Store
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_PACK = {"float16": "cvt.rn.f16x2.f32", "bfloat16": "cvt.rn.bf16x2.f32"}


@emit.register(PairLoop)
def _emit_pairs(stmt: PairLoop, ctx: AttentionContext) -> tirx.Stmt | None:
    """Two neighbours of a row at once."""
    (store,) = stmt.body
    assert isinstance(store, Store)
    dtype = str(store.buffer.dtype)
    value = store.value
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "float32":
        value = value.value
    var = stmt.vars[-1]
    small = dtype in SMALL_PAIRED

    def pair() -> tirx.Stmt:
        register = ctx.register(store.buffer, store.indices)
        values = [_element(side, var, ctx, value) for side in range(2)]
        if small:
            packed = pack_small(dtype).call(*values)
            return tirx.BufferStore(ctx.halves[store.buffer], packed, [_half_place(register)])
        word = ctx.held[store.buffer][tirx.truncdiv(register, i32(2))]
        return call(instruction(_PACK[dtype])(word, values[1], values[0]))

    pairs = over_layout(Iterations(stmt.vars, stmt.extents, stmt.layout, 2), pair, ctx)
    return sequence([pairs, *_quads(store.buffer, ctx)]) if small and pairs is not None else pairs


def _half_place(register: Expr) -> Expr:
    """Where a pair of 8-bit elements lies among the halves of an operand's words: those of neighbouring
    groups of eight columns share one."""
    group, rest = tirx.truncdiv(register, i32(8)), tirx.truncmod(register, i32(8))
    return group * 4 + tirx.truncdiv(tirx.truncmod(rest, i32(4)), i32(2)) * 2 + tirx.truncdiv(rest, i32(4))


def _quads(buffer: Var, ctx: AttentionContext) -> list[tirx.Stmt]:
    """The words of an 8-bit operand: four neighbours along K of pairs that lanes of a quad swap, or two pairs
    as they are where the other operand has that order."""
    words, halves = ctx.held[buffer], [tirx.Cast("uint32", half) for half in _all(ctx.halves[buffer])]
    pairs = zip(halves[::2], halves[1::2], strict=True)
    joined = (T.bitwise_or(low, T.shift_left(high, u32(16))) for low, high in pairs)
    own = (pair if buffer in ctx.in_order else QUAD.call(pair, ctx.lane) for pair in joined)
    return [tirx.BufferStore(words, word, [i32(place)]) for place, word in enumerate(own)]


def _all(values: Var) -> list[Expr]:
    return [values[place] for place in range(int_value(values.shape[0]) or 0)]


def _element(side: int, var: Var, ctx: AttentionContext, value: Expr) -> Expr:
    """``value`` for one of two neighbours, in float32."""
    first, *rest = ctx.digits[var]
    base = ctx.env[var]
    with ctx.scope():
        ctx.digits[var] = (Part(1, first.size, i32(side), True), *rest)
        ctx.env[var] = base + tirx.const(side, dtype_of(var))
        found = ctx.value(value)
    ctx.digits[var] = (first, *rest)
    return cast_to(found, "float32")
