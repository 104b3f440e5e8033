"""Device code of asynchronous products, the waits for them, and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    LaunchDependents,
    ProductsWait,
    Turn,
)
from tilec.backends.cuda.device.exchange import pin_sums
from tilec.backends.cuda.device.ptx import instruction, with_operands
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.warp_roles.emit.build import emits, i32, let, ptx, run, u32, when
from tilec.backends.cuda.warp_roles.emit.operands import Operand
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import extent_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

_TURN_BARRIER = 4


@emits(AsyncProduct)
def _product(stmt: AsyncProduct, ctx: AttentionContext) -> None:
    """All steps along K, as one group."""
    data = ctx.fragments[stmt.c.buffer].data
    sums = [data[i] for i in range(stmt.columns // 2)]
    narrow = element_bytes(str(stmt.b.buffer.dtype)) == 1
    words: Any = ctx.held.get(stmt.a.buffer)
    b = Operand(stmt.b, not stmt.trans_b, ctx)
    first_b = let("b", b.descriptor())
    a = None if words is not None else Operand(stmt.a, stmt.trans_a, ctx)
    first_a = None if a is None else let("a", a.descriptor(ctx.warpgroup))
    across = [] if narrow else [*([] if a is None else [int(stmt.trans_a)]), int(not stmt.trans_b)]
    name = f"wgmma.mma_async.sync.aligned.{stmt.tile.instruction}.{stmt.types}"
    clear = int_value(stmt.clear)

    def operands(step: int) -> list[Expr]:
        left = [words[4 * step + q] for q in range(4)] if a is None else [first_a + a.step(step)]
        return [*left, first_b + b.step(step), tirx.const(0 if clear and step == 0 else 1, "uint32")]

    *operands_of_first, adds = operands(0)
    made = instruction(name)(*sums, *operands_of_first, T.ptx.pred(adds), 1, 1, *across)
    ptx("wgmma.fence.sync.aligned")
    run(made)
    for step in range(1, stmt.tile.steps):
        run(with_operands(made, dict(enumerate(operands(step), len(sums)))))
    ptx("wgmma.commit_group.sync.aligned")


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
