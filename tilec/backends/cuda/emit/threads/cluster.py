"""What a block does to shared memory of another one of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.remote import send, store_remote
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import call, emit, once_tests
from tilec.backends.cuda.emit.threads.groups import barrier_at, emit_arrive
from tilec.backends.cuda.nodes import ArriveOnce, RemoteStore
from tilec.ir.exprs import all_of, dtype_of
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import guarded
from tilec.lowering.emission.storage import convert, element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: The fewest bytes that one instruction sends.
SENT_AT_LEAST = 4


@emit.register(RemoteStore)
def _emit_remote(stmt: RemoteStore, ctx: DeviceContext) -> tirx.Stmt | None:
    conds = open_bounds(stmt.buffer, stmt.indices, ctx)
    if conds is None:
        return None
    dtype = str(stmt.buffer.dtype)
    size = 8 * element_bytes(dtype)
    bits = ctx.stored(stmt.value, dtype)
    if dtype_of(bits) != f"uint{size}":
        bits = tirx.reinterpret(f"uint{size}", bits)
    storage = ctx.storage(stmt.buffer)
    at = storage.data.ptr_to([storage.offset([ctx.value(index) for index in stmt.indices])])
    to = _whither(stmt, ctx)
    made = call(store_remote(size, counted=len(to) > 1).call(at, bits, *to))
    return guarded(made, [ctx.value(all_of(conds))] if conds else [])


def sent_vector(stmt: RemoteStore, place: Expr, tmp: Var, start: int, width: int, tests: list[Expr],
                ctx: DeviceContext) -> tirx.Stmt:  # fmt: skip
    """Writes ``width`` elements to the block of a store from ``place`` on, where all tests hold, as
    `store_vector` has them."""
    storage = ctx.storage(stmt.buffer)
    size = width * element_bytes(storage.dtype)
    begin = start * element_bytes(storage.dtype) // element_bytes(str(tmp.dtype))
    to = _whither(stmt, ctx)
    source = tmp.ptr_to([tirx.const(begin, "int32")])
    made = send(size, counted=len(to) > 1).call(storage.data.ptr_to([place]), source, *to)
    return guarded(call(made), [*tests, *once_tests(stmt.buffer, ctx)])


def _whither(stmt: RemoteStore, ctx: DeviceContext) -> list[Expr]:
    """The block that a store goes to, and the barrier that counts its bytes if there is one."""
    block = convert(ctx.value(stmt.block), "int32")
    if stmt.barrier is None or stmt.index is None:
        return [block]
    return [block, barrier_at(stmt.barrier, stmt.index, ctx)]


@emit.register(ArriveOnce)
def _emit_once(stmt: ArriveOnce, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    return guarded(emit_arrive(stmt, ctx), [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])
