"""Device code of asynchronous products, the waits for them, turns, and fragments that are held as words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.context import AttentionContext
from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    JoinLanes,
    LaneSums,
    LaunchDependents,
    PairLoop,
    ProductsWait,
    Turn,
)
from tilec.backends.cuda.device.exchange import pin_sums
from tilec.backends.cuda.device.ptx import instruction, with_operands
from tilec.backends.cuda.emit.context import DeviceContext, Part
from tilec.backends.cuda.emit.loop import over_layout
from tilec.backends.cuda.emit.reduce import joined_lanes, lane_sums
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.warp_roles.build import emits, i32, let, ptx, run, u32, when
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES, ROWS, STEP_BYTES
from tilec.ir.layout_algebra import extent_of
from tilec.ir.nodes import Region, Store
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Matrix descriptor (PTX ISA, "Shared Memory Matrix Layout"): 128-byte swizzle, 1024 bytes from one group of
#: eight rows to the next. The field at bit 16 is the step between slabs where rows run across K.
_SWIZZLED, _GROUP_STEP, _SLAB_BIT = 1 << 62, (1024 >> 4) << 32, 16
_PACK = {"float16": "cvt.rn.f16x2.f32", "bfloat16": "cvt.rn.bf16x2.f32"}
_TURN_BARRIER = 4


@emits(AsyncProduct)
def _product(stmt: AsyncProduct, ctx: AttentionContext) -> None:
    """All steps along K, as one group."""
    data = ctx.fragments[stmt.c.buffer].data
    sums = [data[i] for i in range(stmt.columns // 2)]
    narrow = element_bytes(str(stmt.b.buffer.dtype)) == 1
    words: Any = ctx.held.get(stmt.a.buffer)
    b = _Operand(stmt.b, not stmt.trans_b, 0, "b", ctx)
    a = None if words is not None else _Operand(stmt.a, stmt.trans_a, ROWS, "a", ctx)
    across = [] if narrow else [*([] if a is None else [int(stmt.trans_a)]), int(not stmt.trans_b)]
    name = f"wgmma.mma_async.sync.aligned.{stmt.tile.instruction}.{stmt.types}"
    clear = int_value(stmt.clear)

    def operands(step: int) -> list[Expr]:
        left = [words[4 * step + q] for q in range(4)] if a is None else [a.at(step)]
        return [*left, b.at(step), tirx.const(0 if clear and step == 0 else 1, "uint32")]

    *operands_of_first, adds = operands(0)
    made = instruction(name)(*sums, *operands_of_first, T.ptx.pred(adds), 1, 1, *across)
    ptx("wgmma.fence.sync.aligned")
    run(made)
    for step in range(1, stmt.tile.steps):
        run(with_operands(made, dict(enumerate(operands(step), len(sums)))))
    ptx("wgmma.commit_group.sync.aligned")


class _Operand:
    """Descriptors of a version of a shared tile. ``across``: its rows of 128 bytes run along M or N, else
    along K; ``rows`` of M belong to one warpgroup, 0 where all read everything."""

    def __init__(self, region: Region, across: bool, rows: int, name: str, ctx: AttentionContext) -> None:
        _, lines, _ = (int_value(extent) or 1 for extent in region.buffer.shape)
        self._across, self._slab = across, lines * ROW_BYTES
        place = ctx.version(region.buffer, ctx.value(region.start[0]))
        if rows:
            place = place + u32(ctx.warpgroup) * u32(self._slab if across else rows * ROW_BYTES)
        step = self._slab >> 4 if across else 1
        high = tirx.const(_SWIZZLED | _GROUP_STEP | step << _SLAB_BIT, "uint64")
        low = T.bitwise_and(T.shift_right(place, u32(4)), u32(0x3FFF))
        self._first = let(name, tirx.Cast("uint64", low) + high)

    def at(self, step: int) -> Expr:
        """The descriptor of a step of 32 bytes along K: 16 rows of it, or a quarter of a row."""
        if self._across:
            offset = step * STEP_BYTES // 2 * ROW_BYTES
        else:
            slab, part = divmod(step, ROW_BYTES // STEP_BYTES)
            offset = slab * self._slab + part * STEP_BYTES
        return self._first + tirx.const(offset >> 4, "uint64")


@emits(ProductsWait)
def _wait(stmt: ProductsWait, ctx: AttentionContext) -> None:
    ptx("wgmma.wait_group.sync.aligned", stmt.pending)
    for region in stmt.sums:
        fragment = ctx.fragments[region.buffer]
        run(pin_sums(extent_of(fragment.layout, "reg")).call(fragment.data.ptr_to([0])))


@emits(Turn)
def _turn(stmt: Turn, ctx: AttentionContext) -> None:
    """A warpgroup's turn is a barrier of its own, at which the one before arrives."""
    if stmt.begin:
        ptx("bar.sync", u32(ctx.warpgroup + i32(_TURN_BARRIER)), 256)
        return
    following = tirx.truncmod(ctx.warpgroup + 1, i32(ctx.roles.consumers))
    ptx("bar.arrive", u32(following + _TURN_BARRIER), 256)


def first_turn(ctx: AttentionContext) -> None:
    """The first turn is the first warpgroup's."""
    with when(tirx.EQ(ctx.warpgroup, i32(ctx.roles.consumers - 1))):
        ptx("bar.arrive", u32(i32(_TURN_BARRIER)), 256)


@emits(LaunchDependents)
def _launch_dependents(stmt: LaunchDependents, ctx: DeviceContext) -> None:
    ptx("griddepcontrol.launch_dependents")


# ---- sums of lanes ----


@emit.register(LaneSums)
def _emit_lane_sums(stmt: LaneSums, ctx: AttentionContext) -> tirx.Stmt:
    return lane_sums(stmt, ctx)


@emit.register(JoinLanes)
def _emit_join(stmt: JoinLanes, ctx: AttentionContext) -> tirx.Stmt:
    return joined_lanes(stmt.sums.buffer, ctx.fragments[stmt.over.buffer].layout, stmt.axis, ctx)


# ---- words ----


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

    def pair() -> tirx.Stmt:
        word = ctx.held[store.buffer][tirx.truncdiv(ctx.register(store.buffer, store.indices), i32(2))]
        values = [_element(side, var, ctx, value) for side in range(2)]
        return call(instruction(_PACK[dtype])(word, values[1], values[0]))

    return over_layout(stmt.vars, stmt.extents, stmt.layout, 2, pair, ctx)


def _element(side: int, var: Var, ctx: AttentionContext, value: Expr) -> Expr:
    """``value`` for one of two neighbours, in float32."""
    first, *rest = ctx.digits[var]
    base = ctx.env[var]
    with ctx.scope():
        ctx.digits[var] = (Part(1, first.size, i32(side), True), *rest)
        ctx.env[var] = base + tirx.const(side, dtype_of(var))
        found = ctx.value(value)
    ctx.digits[var] = (first, *rest)
    return found if dtype_of(found) == "float32" else tirx.Cast("float32", found)
