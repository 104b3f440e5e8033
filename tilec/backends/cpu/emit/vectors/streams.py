"""Stores that pass the caches by (x86's non-temporal ones), of results that the last cache would not keep
until somebody reads them, and whose lines it would fetch first to write them.

A launch streams what it stores and nothing of its kernel reads. Whether it does is decided when it runs: by
the size of the tensor, and in front of each innermost loop by where its first vector lies, as such stores
need an aligned place. A fence at the end of the launch's function comes before what tells others that its
blocks are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import AskAhead, MicroGemm
from tilec.ir.analysis.aliases import named_in
from tilec.ir.exprs import all_of, dtype_of, int_value, linear_in
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Atomic, Store, TensorParam, walk
from tilec.ir.traits import read
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.emission.statements import branch
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block, Kernel, Launch
    from tilec.lowering.emission.storage import Storage

#: A result is streamed from this part of the last cache on: what it is made of takes as much room, mostly.
_PART = 2

_FENCE = """declare void @llvm.x86.sse.sfence()
define linkonce_odr hidden i32 @tilec_fence() alwaysinline nounwind {
  call void @llvm.x86.sse.sfence()
  ret i32 0
}"""

_MISPLACED = """define linkonce_odr hidden i32 @tilec_misplaced(ptr %place,
    i32 %bytes) alwaysinline nounwind {
  %address = ptrtoint ptr %place to i64
  %low = trunc i64 %address to i32
  %below = sub i32 %bytes, 1
  %rest = and i32 %low, %below
  ret i32 %rest
}"""

_STREAM = """define linkonce_odr hidden i32 @{name}(ptr %place, {vector} %value) alwaysinline nounwind {{
  store {vector} %value, ptr %place, align {bytes}, !nontemporal !{{i32 1}}
  ret i32 0
}}"""

_ELEMENTS = {"float16": "half", "float32": "float", "float64": "double"}


def open_streams(kernel: Kernel, launch: Launch, ctx: LaneContext) -> list[tirx.Stmt]:
    """Finds the tensors that a launch may stream, and computes for each of them whether it does."""
    return [_decided(tensor, ctx) for tensor in _streamable(kernel, launch, ctx)]


def _streamable(kernel: Kernel, launch: Launch, ctx: LaneContext) -> list[Var]:
    """The tensors that a launch writes and nothing of the kernel reads. Launches with products have their
    results in short pieces; what atomic updates tell others has to come behind plain stores."""
    if ctx.target.arch != "x86_64" or any(
        isinstance(stmt, (MicroGemm, Atomic)) for stmt in walk(launch.body)
    ):
        return []
    stmts = (stmt for each in kernel.launches for stmt in walk(each.body) if not isinstance(stmt, AskAhead))
    known = {buffer for stmt in stmts for buffer in read(stmt)}
    found = written_in(launch.body) - known
    tensors = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
    return [tensor for tensor in tensors if tensor in found and str(tensor.name) not in named_in(kernel)]


def _decided(tensor: Var, ctx: LaneContext) -> tirx.Stmt:
    """The name of whether a tensor is too large for the last cache."""
    size: Expr = tirx.const(_PART * element_bytes(str(tensor.dtype)), "int64")
    for extent in ctx.storage(tensor).shape:
        size = size * tirx.Cast("int64", ctx.value(extent))
    streams = ctx.fresh(f"{tensor.name}_streams", "bool")
    ctx.streams[tensor] = streams
    return tirx.Bind(streams, size >= tirx.call_extern("int64", "tilec_last_cache_bytes"))


def close_streams(ctx: LaneContext) -> list[tirx.Stmt]:
    """The fence at the end of a launch's function, where something was streamed."""
    if not ctx.streams:
        return []
    ctx.functions["tilec_fence"] = _FENCE
    fence = tirx.Evaluate(tirx.call_extern("int32", "tilec_fence"))
    first, *others = ctx.streams.values()
    for streams in others:
        first = tirx.Or(first, streams)
    return [tirx.IfThenElse(first, fence, None)]


def emit_streaming(
    var: Var, start: Expr, body: Block, ctx: LaneContext, emit: Callable[[], tirx.Stmt | None]
) -> tirx.Stmt | None:
    """What ``emit`` makes of a loop over ``var`` from ``start`` with ``body``; twice where its stores may be
    streamed."""
    places = {} if ctx.recorder is not None else _places(var, start, body, ctx)
    if not places:
        return emit()
    tests = [ctx.streams[store.buffer] for store in places]
    tests += [_is_placed(store.buffer, place, ctx) for store, place in places.items()]
    with ctx.stream_scope(frozenset(places)):
        streamed = emit()
    return branch(all_of(tests), streamed, emit())


def _places(var: Var, start: Expr, body: Block, ctx: LaneContext) -> dict[Store, Expr]:
    """The stores that may be streamed, of elements side by side, and where their first elements lie."""
    stores = [stmt for stmt in body if isinstance(stmt, Store) and stmt.buffer in ctx.streams]
    found = {store: _first(store, var, start, ctx) for store in stores}
    return {store: place for store, place in found.items() if place is not None}


def _first(store: Store, var: Var, start: Expr, ctx: LaneContext) -> Expr | None:
    """Where the element of a store lies at the start of a loop; None where that of the next iteration does
    not lie beside it, or only the body knows."""
    storage, indices = ctx.storage(store.buffer), [ctx.facts.inline(index) for index in store.indices]
    if int_value(storage.strides[-1]) != 1 or not all(_is_known(index, var, ctx) for index in indices):
        return None
    steps = [linear_in(index, [var]) for index in indices]
    if [int_value(step[0]) if step else None for step in steps] != [0] * (len(steps) - 1) + [1]:
        return None
    with ctx.scope():
        ctx.env[var] = start
        return storage.offset([ctx.value(index) for index in indices])


def _is_known(index: Expr, var: Var, ctx: LaneContext) -> bool:
    """Whether all variables of an index have values in front of the loop over ``var``."""
    names = [node for node in walk_expr(index) if isinstance(node, tirx.Var)]
    return all(name.same_as(var) or name in ctx.env for name in names)


def _is_placed(tensor: Var, place: Expr, ctx: LaneContext) -> Expr:
    """Whether a place suits vectors of any size."""
    ctx.functions["tilec_misplaced"] = _MISPLACED
    address = tirx.address_of(tirx.BufferLoad(ctx.storage(tensor).data, [place]))
    size = tirx.const(ctx.target.vector_bits // 8, "int32")
    return tirx.EQ(tirx.call_extern("int32", "tilec_misplaced", address, size), tirx.const(0, "int32"))


def stream(storage: Storage, index: Expr, stored: Expr, ctx: LaneContext) -> tirx.Stmt | None:
    """The store of a vector at an aligned place, past the caches; None for a short one, which the end of a
    loop has."""
    kind, lanes = dtype_of(stored).partition("x")[0], lanes_of(stored)
    size = lanes * element_bytes(storage.dtype)
    if not isinstance(index, tirx.Ramp) or 16 * size < ctx.target.vector_bits:
        return None
    name = f"tilec_stream_{kind}x{lanes}"
    element = _ELEMENTS.get(kind, f"i{8 * element_bytes(storage.dtype)}")
    ctx.functions[name] = _STREAM.format(name=name, vector=f"<{lanes} x {element}>", bytes=size)
    place = tirx.address_of(tirx.BufferLoad(storage.data, [index.base]))
    return tirx.Evaluate(tirx.call_extern("int32", name, place, stored))
