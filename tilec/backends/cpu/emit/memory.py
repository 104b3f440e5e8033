"""Memory of a block's own tiles: stack arrays, slices of the worker's scratch, copies per lane for loop
temporaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.errors import CompileError
from tilec.lowering.emission.memory import elements, first_value, flat_memory
from tilec.lowering.emission.statements import sequence

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Alloc


def allocate(stmt: Alloc, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR that makes the memory of ``stmt.buffer`` and, for a variable, its first value."""
    data = flat_memory(stmt.buffer, elements(stmt), ctx, layout=stmt.layout, copies=ctx.width)
    return sequence([*_declared(stmt, data, ctx), *first_value(stmt, ctx, ctx.width)])


def _declared(stmt: Alloc, data: Var, ctx: LaneContext) -> list[tirx.Stmt]:
    if not isinstance(stmt.place, tuple):
        return [tirx.AllocBuffer(data)]
    if ctx.lanes is not None:
        raise CompileError(f"the loop temporary {stmt.buffer.name} was placed in scratch")
    return _scratch_slice(data, stmt.place[1], ctx)


def _scratch_slice(data: Var, offset: int, ctx: LaneContext) -> list[tirx.Stmt]:
    """Declares the flat buffer ``data`` at ``offset`` bytes of the worker's scratch."""
    kind = tvm_ir.PointerType(tvm_ir.PrimType(str(data.dtype)))
    pointer = tirx.Var(f"{data.name}_ptr", kind)
    start = [ctx.scratch, tirx.const(offset, "int64")]
    return [
        tirx.Bind(pointer, tvm_ir.Call("tirx.handle_add_byte_offset", start, ret_ty=kind)),
        tirx.DeclBuffer(data, data=pointer),
    ]
