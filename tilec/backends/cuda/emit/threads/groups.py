"""Groups of threads and the barriers between them: mbarriers of shared memory, and named barriers of a
group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.device import barriers
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import call, emit, need_named_barriers
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.nodes import CompleteBytes, InitBarriers
from tilec.ir.nodes import Launch, walk
from tilec.ir.nodes.barriers import Arrive, ClusterBarrier, ExpectBytes, Group, NamedArrive, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.lowering.emission.statements import guarded, sequence
from tilec.lowering.emission.storage import convert

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_CLUSTER = {
    "arrive": "barrier.cluster.arrive",
    "arrive_relaxed": "barrier.cluster.arrive.relaxed",
    "wait": "barrier.cluster.wait",
}
#: Named barriers of a block (PTX ISA, "bar, barrier").
_BARRIERS = 16


def free_barriers(launch: Launch) -> list[int]:
    """The numbers of named barriers that the author of a launch leaves free; 0 is that of the block."""
    taken = {stmt.barrier for stmt in walk(launch.body) if isinstance(stmt, Sync)}
    taken |= {stmt.number for stmt in walk(launch.body) if isinstance(stmt, NamedArrive)}
    return [number for number in range(1, _BARRIERS) if number not in taken]


@emit.register(Group)
def _emit_group(stmt: Group, ctx: DeviceContext) -> tirx.Stmt | None:
    assert ctx.block_warp is not None
    first, count = (tirx.const(value // WARP, "int32") for value in (stmt.first, stmt.count))
    warp = ctx.block_warp
    tests = [] if stmt.first == 0 else [tirx.GE(warp, first)]
    if stmt.first + stmt.count < ctx.block_warps * WARP:
        tests.append(tirx.LT(warp, first + count))
    with _group(stmt, ctx) as binds, ctx.facts.assume(_members(stmt, ctx)):
        inner = ctx.block(stmt.body)
    return None if inner is None else guarded(sequence([*binds, inner]), tests)


def _members(stmt: Group, ctx: DeviceContext) -> Expr:
    """What holds of the indices that the author of a launch names, if its threads are those of a group."""
    if ctx.number is None:
        return tirx.const(True, "bool")
    return tirx.And(ctx.number >= stmt.first, ctx.number < stmt.first + stmt.count)


@contextmanager
def _group(stmt: Group, ctx: DeviceContext) -> Iterator[list[tirx.Stmt]]:
    """Within the context the threads of a group are those that share the work; gives what names them."""
    before = (ctx.thread, ctx.warp, ctx.warps, ctx.once, ctx.group)
    assert ctx.block_warp is not None
    assert ctx.lane is not None
    binds: list[tirx.Stmt] = []
    if stmt.first:
        ctx.thread, ctx.warp = (ctx.fresh(name, "int32") for name in ("group_thread", "group_warp"))
        warp = tirx.Max(ctx.block_warp - tirx.const(stmt.first // WARP, "int32"), tirx.const(0, "int32"))
        binds.append(tirx.Bind(ctx.warp, warp))
        binds.append(tirx.Bind(ctx.thread, ctx.warp * tirx.const(WARP, "int32") + ctx.lane))
    else:
        ctx.warp, ctx.thread = ctx.block_warp, ctx.block_thread
    ctx.warps = stmt.count // WARP
    ctx.group = (stmt.first, stmt.count)
    if ctx.once is not None:
        ctx.once = tirx.EQ(ctx.thread, tirx.const(0, "int32"))
    try:
        yield binds
    finally:
        ctx.thread, ctx.warp, ctx.warps, ctx.once, ctx.group = before


@emit.register(InitBarriers)
def _emit_init(stmt: InitBarriers, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    parts = [
        call(barriers.OPEN.call(barrier_at(stmt.barrier, number, ctx), tirx.const(count, "int32")))
        for number, count in enumerate(stmt.counts)
    ]
    if stmt.cluster:
        ctx.cluster_barriers.add(stmt.barrier)
    if stmt.cluster or ctx.pool_address is not None:
        parts.append(call(instruction("fence.mbarrier_init.release.cluster")()))
    return guarded(sequence(parts), [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])


@emit.register(Arrive)
def emit_arrive(stmt: Arrive, ctx: DeviceContext) -> tirx.Stmt:
    """Arrivals of the threads that run it."""
    at = barrier_at(stmt.barrier, stmt.index, ctx)
    count = () if stmt.expect is None else (convert(ctx.value(stmt.expect), "int32"),)
    if stmt.block is None:
        return call((barriers.ARRIVE_EXPECT if count else barriers.ARRIVE).call(at, *count))
    rank = convert(ctx.value(stmt.block), "int32")
    return call((barriers.ARRIVE_EXPECT_REMOTE if count else barriers.ARRIVE_REMOTE).call(at, *count, rank))


@emit.register(ExpectBytes)
def _emit_expect(stmt: ExpectBytes, ctx: DeviceContext) -> tirx.Stmt:
    at, count = barrier_at(stmt.barrier, stmt.index, ctx), convert(ctx.value(stmt.count), "int32")
    return call(barriers.EXPECT.call(at, count))


@emit.register(CompleteBytes)
def _emit_complete(stmt: CompleteBytes, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    at, count = barrier_at(stmt.barrier, stmt.index, ctx), tirx.const(stmt.count, "int32")
    done = call(barriers.COMPLETE.call(at, count))
    return done if stmt.alone else guarded(done, [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])


@emit.register(NamedArrive)
def _emit_named(stmt: NamedArrive, ctx: DeviceContext) -> tirx.Stmt:
    need_named_barriers("T.named_barrier_arrive", "use T.sync_threads() of the whole block", ctx)
    return call(instruction("bar.arrive")(tirx.const(stmt.number, "uint32"), stmt.count))


@emit.register(ClusterBarrier)
def _emit_cluster(stmt: ClusterBarrier, ctx: DeviceContext) -> tirx.Stmt:
    return call(instruction(_CLUSTER[stmt.kind])())


@emit.register(WaitPhase)
def _emit_wait(stmt: WaitPhase, ctx: DeviceContext) -> tirx.Stmt:
    # A wait may sleep where bulk copies arrive; elsewhere it asks again and again.
    word = "try_wait.parity.shared" if has_tma(ctx.target) else "test_wait.parity.shared"
    in_cluster = stmt.barrier in ctx.cluster_barriers
    if in_cluster:
        word = "try_wait.parity.acquire.cluster.shared::cta"
    at, parity = barrier_at(stmt.barrier, stmt.index, ctx), convert(ctx.value(stmt.parity), "int32")
    return call(barriers.wait(word, in_cluster).call(at, parity))


def barrier_at(barrier: Var, index: Expr | int, ctx: DeviceContext) -> Expr:
    """The address of one barrier."""
    place = tirx.const(index, "int32") if isinstance(index, int) else ctx.value(index)
    return ctx.storage(barrier).data.ptr_to([place])
