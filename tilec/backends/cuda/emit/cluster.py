"""What a block does to shared memory of another one of its cluster."""

from __future__ import annotations

from tvm import tirx

from tilec.backends.cuda.device.moves import store_remote
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.groups import emit_arrive
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.nodes import ArriveOnce, RemoteStore
from tilec.ir.exprs import all_of, dtype_of
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.statements import guarded
from tilec.lowering.emission.storage import convert, element_bytes


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
    block = convert(ctx.value(stmt.block), "int32")
    made = call(store_remote(size).call(at, bits, block))
    return guarded(made, [ctx.value(all_of(conds))] if conds else [])


@emit.register(ArriveOnce)
def _emit_once(stmt: ArriveOnce, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    return guarded(emit_arrive(stmt, ctx), [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])
