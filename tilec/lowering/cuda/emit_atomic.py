"""Atomic as the device's instructions, or as compare-and-swap where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.errors import UnsupportedError
from tilec.ir.nodes import Atomic
from tilec.lowering.cpu.access import open_bounds
from tilec.lowering.cpu.statements import sequence
from tilec.lowering.cpu.storage import compute_type
from tilec.lowering.cuda.context import DeviceContext
from tilec.lowering.cuda.emit import emit, guarded, once_tests
from tilec.lowering.exprs import all_of
from tilec.lowering.places import place_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_NATIVE = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
  return ({value}){function}(({cell}*)at, ({cell})value);
}}
"""
_SWAPPED = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
  {bits}* cell = ({bits}*)at;
  {bits} held = *cell, before;
  do {{
    before = held;
    {value} old = {decode};
    {value} made = {combine};
    held = atomicCAS(cell, before, {encode});
  }} while (held != before);
  return {decode};
}}
"""


@dataclass(frozen=True)
class _Type:
    """How an element type is updated: the C type of values, the cell of native updates with the kinds that
    have them, and for the others the bits that are exchanged."""

    value: str
    cell: str = ""
    native: tuple[str, ...] = ()
    bits: str = ""
    decode: str = ""
    encode: str = ""


_ORDERED = ("add", "max", "min", "or")
_FROM_BITS = (
    '([](unsigned short b) {{ float f; asm("cvt.f32.{ptx} %0, %1;" : "=f"(f) : "h"(b)); return f; }})(before)'
)
_TO_BITS = (
    '([](float f) {{ unsigned short b; asm("cvt.rn.{ptx}.f32 %0, %1;" '
    ': "=h"(b) : "f"(f)); return b; }})(made)'
)
_TYPES = {
    "int32": _Type("int", "int", _ORDERED),
    "uint32": _Type("unsigned", "unsigned", _ORDERED),
    "int64": _Type("long", "long long", ("max", "min"), "unsigned long long", "(long)before",
                   "(unsigned long long)made"),
    "uint64": _Type("unsigned long", "unsigned long long", _ORDERED),
    "float32": _Type("float", "float", ("add",), "unsigned", "__uint_as_float(before)",
                     "__float_as_uint(made)"),
    "float64": _Type("double", "double", ("add",), "unsigned long long",
                     "__longlong_as_double((long long)before)",
                     "(unsigned long long)__double_as_longlong(made)"),
    "float16": _Type("float", bits="unsigned short", decode=_FROM_BITS.format(ptx="f16"),
                     encode=_TO_BITS.format(ptx="f16")),
    "bfloat16": _Type("float", bits="unsigned short", decode="__uint_as_float((unsigned)before << 16)",
                      encode=_TO_BITS.format(ptx="bf16")),
}  # fmt: skip
_FUNCTIONS = {"add": "atomicAdd", "max": "atomicMax", "min": "atomicMin", "or": "atomicOr"}
_COMBINED = {"add": "old + value", "max": "max(old, value)", "min": "min(old, value)", "or": "old | value"}


@emit.register(Atomic)
def _emit_atomic(stmt: Atomic, ctx: DeviceContext) -> tirx.Stmt | None:
    if stmt.buffer in ctx.fragments:
        raise UnsupportedError(
            f"atomic update of the fragment {stmt.buffer.name}",
            place=place_of(stmt),
            remedy="use a shared tile",
        )
    conds = open_bounds(stmt.buffer, stmt.indices, ctx)
    update = None if conds is None else _update(stmt, ctx)
    tests = [ctx.value(all_of(conds))] if conds else []
    if stmt.prev is None:
        return None if update is None else guarded(tirx.Evaluate(update), [*tests, *_once(stmt, ctx)])
    if _once(stmt, ctx):
        raise UnsupportedError(
            "the old value of an atomic update that one thread does for others",
            place=place_of(stmt),
            remedy="give the loop as many iterations as the block has threads, or drop return_prev",
        )
    kind = compute_type(str(stmt.buffer.dtype))
    held = tirx.decl_buffer((1,), kind, name=ctx.fresh(f"{stmt.prev.name}_held", "int32").name, scope="local")
    first = [tirx.const(0, "int32")]
    parts = [tirx.AllocBuffer(held), tirx.BufferStore(held, tirx.const(0, kind), first)]
    if update is not None:
        parts.append(guarded(tirx.BufferStore(held, update, first), tests))
    old = tirx.BufferLoad(held, first)
    return sequence([*parts, tirx.Bind(ctx.define(stmt.prev, old), old)])


def _once(stmt: Atomic, ctx: DeviceContext) -> list[Expr]:
    return once_tests(stmt.buffer, ctx)


def _update(stmt: Atomic, ctx: DeviceContext) -> Expr:
    """The call that updates one element and gives what it held."""
    storage = ctx.storage(stmt.buffer)
    kind = _TYPES.get(storage.dtype)
    if kind is None or (stmt.kind == "or" and "or" not in kind.native):
        raise UnsupportedError(
            f"no atomic {stmt.kind} of {storage.dtype} on CUDA",
            place=place_of(stmt),
            remedy=f"use one of {', '.join(_TYPES)}",
        )
    name = f"tilec_atomic_{stmt.kind}_{storage.dtype}"
    pointer = storage.data.ptr_to([storage.offset([ctx.value(index) for index in stmt.indices])])
    value = ctx.value(stmt.value)
    return T.cuda.func_call(
        name,
        pointer,
        value,
        source_code=_code(name, stmt.kind, kind),
        return_type=compute_type(storage.dtype),
    )


def _code(name: str, kind: str, element: _Type) -> str:
    if kind in element.native:
        return _NATIVE.format(value=element.value, name=name, function=_FUNCTIONS[kind], cell=element.cell)
    return _SWAPPED.format(
        value=element.value,
        name=name,
        bits=element.bits,
        decode=element.decode,
        encode=element.encode,
        combine=_COMBINED[kind],
    )
