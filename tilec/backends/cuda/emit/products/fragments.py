"""LaneMma, LaneSparseMma and LaneLoad: mma.sync, mma.sp and ldmatrix on what each thread holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.products.mma import sparse_instruction_name
from tilec.backends.cuda.device.matrices import lanes_ldmatrix, lanes_mma
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.operands import bits
from tilec.backends.cuda.emit.statements import call, emit
from tilec.backends.cuda.limits import has_float8
from tilec.errors import UnsupportedError
from tilec.ir.analysis.threads.fragments import SUMS, depth_of, dtypes, instruction_types, per_register
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes.threads import LaneLoad, LaneMma, LaneSparseMma
from tilec.ir.places import place_of
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, TensorLoad


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


@emit.register(LaneSparseMma)
def _emit_sparse(stmt: LaneSparseMma, ctx: DeviceContext) -> tirx.Stmt:
    _check(stmt, instruction_types(stmt) or "", ctx)
    count = depth_of(stmt.shape) // per_register(str(stmt.a.source.dtype)) // 4
    operands = [*_words(stmt.a, count, ctx), *_words(stmt.b, count, ctx)]
    places = (*_words(stmt.e, 1, ctx), tirx.const(stmt.selector, "int32"))
    multiply = instruction(sparse_instruction_name(stmt.shape, dtypes(stmt)))
    storage, indices = ctx.storage(stmt.buffer), [ctx.value(index) for index in stmt.indices]
    sums = [storage.data[storage.offset(indices) + tirx.const(number, "int32")] for number in range(SUMS)]
    if str(stmt.buffer.dtype) == "float32":
        return call(multiply(*sums, *operands, *sums, *places))
    # TVM's table of instructions has sums of integers as unsigned ones alone
    unsigned = tirx.decl_buffer((SUMS,), "uint32", name=ctx.fresh("sums", "int32").name, scope="local")
    words = [unsigned[tirx.const(number, "int32")] for number in range(SUMS)]
    made = call(multiply(*words, *operands, *words, *places))
    return sequence([tirx.AllocBuffer(unsigned), *_stores(words, sums), made, *_stores(sums, words)])


def _stores(to: Sequence[TensorLoad], values: Sequence[Expr]) -> list[tirx.Stmt]:
    """Stores to the elements that ``to`` reads."""
    return [
        tirx.BufferStore(each.source, tirx.Cast(dtype_of(each), value), each.indices)
        for each, value in zip(to, values, strict=True)
    ]


def _check(stmt: LaneMma, types: str, ctx: DeviceContext) -> None:
    if ("e4m3" not in types and "e5m2" not in types) or has_float8(ctx.target):
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
