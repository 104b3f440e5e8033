"""LaneMma and LaneLoad: mma.sync and ldmatrix on what each thread holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.matrices import lanes_ldmatrix, lanes_mma
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.operands import bits
from tilec.backends.cuda.emit.statements import call, emit
from tilec.errors import UnsupportedError
from tilec.ir.analysis.fragments import depth_of, instruction_types, per_register
from tilec.ir.nodes.threads import LaneLoad, LaneMma
from tilec.ir.places import place_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_FLOAT8 = 89


@emit.register(LaneMma)
def _emit_mma(stmt: LaneMma, ctx: DeviceContext) -> tirx.Stmt:
    types = instruction_types(stmt)
    assert types is not None
    _check(stmt, types, ctx)
    count = depth_of(stmt.shape) // per_register(str(stmt.a.source.dtype)) // 4
    a, b = _words(stmt.a, 2 * count, ctx), _words(stmt.b, count, ctx)
    instruction = f"mma.sync.aligned.{stmt.shape}.row.col.{types}"
    helper = lanes_mma(instruction, str(stmt.buffer.dtype), len(a), len(b))
    return call(helper.call(_held(stmt, ctx), *a, *b))


def _check(stmt: LaneMma, types: str, ctx: DeviceContext) -> None:
    assert ctx.target.gpu is not None
    if ("e4m3" not in types and "e5m2" not in types) or ctx.target.gpu.capability >= _FLOAT8:
        return
    raise UnsupportedError(
        f"{stmt.instruction} {stmt.shape} of 8-bit floats on {ctx.target.name}",
        place=place_of(stmt),
        why="GPUs have it from compute capability 8.9 on",
        remedy="convert to float16, or give the kernel other targets",
    )


def _words(first: Expr, count: int, ctx: DeviceContext) -> list[Expr]:
    """The registers that hold an operand, from its first element on."""
    storage = ctx.storage(first.source)
    place = storage.offset([ctx.value(index) for index in first.indices])
    each = per_register(str(first.source.dtype))
    return [bits(storage.data.ptr_to([place + tirx.const(each * word, "int32")]), 4) for word in range(count)]


def _held(stmt: LaneMma | LaneLoad, ctx: DeviceContext) -> Expr:
    storage = ctx.storage(stmt.buffer)
    return storage.data.ptr_to([storage.offset([ctx.value(index) for index in stmt.indices])])


@emit.register(LaneLoad)
def _emit_load(stmt: LaneLoad, ctx: DeviceContext) -> tirx.Stmt:
    source = ctx.storage(stmt.source.source)
    row = source.data.ptr_to([source.offset([ctx.value(index) for index in stmt.source.indices])])
    return call(lanes_ldmatrix(stmt.count, stmt.trans).call(_held(stmt, ctx), row))
