"""What a block does to shared memory of another one of its cluster."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.groups import emit_arrive
from tilec.backends.cuda.emit.statements import call, emit, guarded
from tilec.backends.cuda.nodes import ArriveOnce, RemoteStore
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.storage import convert, element_bytes
from tilec.lowering.exprs import all_of, dtype_of

_STORE = """
__device__ __forceinline__ void tilec_store_remote_{bits}(void* at, {c_type} value, int block) {{
  unsigned place = (unsigned)__cvta_generic_to_shared(at);
  asm volatile("{{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
               "st.shared::cluster.b{bits} [remote], %2; }}"
               :: "r"(place), "r"(block), "{letter}"(value) : "memory");
}}
"""
#: By the bits of an element: what C calls them, and the letter of their registers in assembly.
_WORDS = {
    8: ("unsigned", "r"),
    16: ("unsigned short", "h"),
    32: ("unsigned", "r"),
    64: ("unsigned long", "l"),
}


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
    c_type, letter = _WORDS[size]
    code = _STORE.format(bits=size, c_type=c_type, letter=letter)
    storage = ctx.storage(stmt.buffer)
    at = storage.data.ptr_to([storage.offset([ctx.value(index) for index in stmt.indices])])
    block = convert(ctx.value(stmt.block), "int32")
    made = call(T.cuda.func_call(f"tilec_store_remote_{size}", at, bits, block, source_code=code))
    return guarded(made, [ctx.value(all_of(conds))] if conds else [])


@emit.register(ArriveOnce)
def _emit_once(stmt: ArriveOnce, ctx: DeviceContext) -> tirx.Stmt:
    assert ctx.thread is not None
    return guarded(emit_arrive(stmt, ctx), [tirx.EQ(ctx.thread, tirx.const(0, "int32"))])
