"""LaneMma and LaneLoad: mma.sync and ldmatrix on what each thread holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.operands import bits
from tilec.backends.cuda.emit.statements import call, emit
from tilec.errors import UnsupportedError
from tilec.ir.analysis.fragments import depth_of, instruction_types, per_register
from tilec.ir.nodes.threads import LaneLoad, LaneMma
from tilec.ir.places import place_of

if TYPE_CHECKING:
    from tvm.ir import Expr

_MMA = """
__device__ __forceinline__ void {name}(void* sums, {words}) {{
  {type}* c = ({type}*)sums;
  asm volatile("{instruction} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"
               : {outputs} : {inputs});
}}
"""
_LOAD = """
__device__ __forceinline__ void {name}(void* to, const void* from) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(from);
  unsigned* words = (unsigned*)to;
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{holes}}}, [%{count}];"
               : {outputs} : "r"(address) : "memory");
}}
"""
#: What holds the sums: their C type, the letter of a register, and how many there are.
_SUMS = {"float32": ("float", "f", 4), "int32": ("int", "r", 4), "float16": ("unsigned", "r", 2)}
_FLOAT8 = 89


@emit.register(LaneMma)
def _emit_mma(stmt: LaneMma, ctx: DeviceContext) -> tirx.Stmt:
    types = instruction_types(stmt)
    kind, letter, count = _SUMS[str(stmt.buffer.dtype)]
    _check(stmt, types, ctx)
    registers = depth_of(stmt.shape) // per_register(str(stmt.a.source.dtype)) // 4
    a, b = _words(stmt.a, 2 * registers, ctx), _words(stmt.b, registers, ctx)
    names = [f"{part}{number}" for part, words in (("a", a), ("b", b)) for number in range(len(words))]
    holes = [f"%{place}" for place in range(count + len(names))]
    instruction = f"mma.sync.aligned.{stmt.shape}.row.col.{types}"
    name = f"tilec_lanes_{instruction.replace('.', '_')}"
    code = _MMA.format(
        name=name,
        type=kind,
        words=", ".join(f"unsigned {word}" for word in names),
        instruction=instruction,
        sums=", ".join(holes[:count]),
        a=", ".join(holes[count : count + len(a)]),
        b=", ".join(holes[count + len(a) :]),
        outputs=", ".join(f'"+{letter}"(c[{place}])' for place in range(count)),
        inputs=", ".join(f'"r"({word})' for word in names),
    )
    return call(T.cuda.func_call(name, _held(stmt, ctx), *a, *b, source_code=code))


def _check(stmt: LaneMma, types: str, ctx: DeviceContext) -> None:
    assert ctx.target.gpu is not None
    if ("e4m3" not in types and "e5m2" not in types) or ctx.target.gpu.capability >= _FLOAT8:
        return
    raise UnsupportedError(
        f"mma.sync {stmt.shape} of 8-bit floats on {ctx.target.name}",
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
    name = f"tilec_lanes_ldmatrix_x{stmt.count}{'_trans' if stmt.trans else ''}"
    code = _LOAD.format(
        name=name,
        count=stmt.count,
        trans=".trans" if stmt.trans else "",
        holes=", ".join(f"%{place}" for place in range(stmt.count)),
        outputs=", ".join(f'"=r"(words[{place}])' for place in range(stmt.count)),
    )
    source = ctx.storage(stmt.source.source)
    row = source.data.ptr_to([source.offset([ctx.value(index) for index in stmt.source.indices])])
    return call(T.cuda.func_call(name, _held(stmt, ctx), row, source_code=code))
