"""Atomic as the device's instructions, or as compare-and-swap where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.atomics import DTYPES, atomic
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.statements import emit, once_tests
from tilec.errors import UnsupportedError
from tilec.ir.nodes import Atomic
from tilec.ir.places import place_of
from tilec.lowering.emission.atomic import emit_update, keep

if TYPE_CHECKING:
    from tvm.ir import Expr


@emit.register(Atomic)
def _emit_atomic(stmt: Atomic, ctx: DeviceContext) -> tirx.Stmt | None:
    if stmt.buffer in ctx.fragments:
        raise UnsupportedError(
            f"atomic update of the fragment {stmt.buffer.name}",
            place=place_of(stmt),
            remedy="use a shared tile",
        )
    once = _once(stmt, ctx)
    if stmt.prev is not None and once:
        raise UnsupportedError(
            "the old value of an atomic update that one thread does for others",
            place=place_of(stmt),
            remedy="give the loop as many iterations as the block has threads, or drop return_prev",
        )
    return emit_update(stmt, lambda held: keep(held, _update(stmt, ctx)), ctx, once, "local")


def _once(stmt: Atomic, ctx: DeviceContext) -> list[Expr]:
    """The condition under which this thread is the one that updates; any number of them may look."""
    return [] if stmt.kind == "load" else once_tests(stmt.buffer, ctx)


def _update(stmt: Atomic, ctx: DeviceContext) -> Expr:
    """The call that updates one element and gives what it held."""
    storage = ctx.storage(stmt.buffer)
    function = atomic(stmt.kind, storage.dtype, stmt.order)
    if function is None:
        raise UnsupportedError(
            f"no atomic {stmt.kind} of {storage.dtype} on CUDA",
            place=place_of(stmt),
            remedy=f"use one of {', '.join(DTYPES)}",
        )
    pointer = storage.data.ptr_to([storage.offset([ctx.value(index) for index in stmt.indices])])
    return function.call(pointer, ctx.value(stmt.value))
