"""Memory of buffers: stack arrays, slices of the worker's scratch, copies per lane for loop temporaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.errors import CompileError, UnsupportedError
from tilec.lowering.emission.storage import Storage, encode, literal, spread, stored_type
from tilec.lowering.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import Context
    from tilec.ir.nodes import Alloc


def allocate(stmt: Alloc, ctx: Context) -> tirx.Stmt:
    """The TIR that makes the memory of ``stmt.buffer`` and, for a variable, its first value."""
    shape = static_shape(stmt.buffer)
    size = elements(stmt)
    copies = ctx.width
    data = tirx.decl_buffer((size * copies,), stored_type(str(stmt.buffer.dtype)), name=_name(stmt, ctx))
    made = _declare(stmt, data, ctx)
    ctx.storages[stmt.buffer] = Storage(
        data=data,
        dtype=str(stmt.buffer.dtype),
        shape=tuple(tirx.const(extent, "int32") for extent in shape),
        strides=row_major_strides(shape),
        index_type="int32",
        layout=stmt.layout,
        copies=copies,
    )
    return tirx.SeqStmt([*made, *_first_value(stmt, ctx)]) if len(made) > 1 or _has_value(stmt) else made[0]


def _name(stmt: Alloc, ctx: Context) -> str:
    return str(ctx.fresh(stmt.buffer.name, "int32").name)


def static_shape(buffer: Var) -> tuple[int, ...]:
    """The extents of a tile, which must be integers."""
    shape = tuple(int_value(extent) for extent in buffer.shape)
    if any(extent is None for extent in shape):
        raise UnsupportedError(
            f"the tile {buffer.name} has the run-time shape {tuple(buffer.shape)}",
            remedy="give tiles integer extents (pin the dimension, or loop over blocks of it)",
        )
    return shape  # type: ignore[return-value]


def elements(stmt: Alloc) -> int:
    """How many elements the memory of a tile holds, gaps and padding included."""
    if stmt.layout is not None:
        return stmt.layout.size
    size = 1
    for extent in static_shape(stmt.buffer):
        size *= extent
    return max(size, 1)


def row_major_strides(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """Element strides of a tile without gaps."""
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(tirx.const(stride, "int32"))
        stride *= extent
    return tuple(reversed(strides))


def _declare(stmt: Alloc, data: Var, ctx: Context) -> list[tirx.Stmt]:
    if isinstance(stmt.place, tuple):
        _, offset = stmt.place
        if ctx.lanes is not None:
            raise CompileError(f"the loop temporary {stmt.buffer.name} was placed in scratch")
        return scratch_slice(data, offset, ctx)
    return [tirx.AllocBuffer(data)]


def scratch_slice(data: Var, offset: int, ctx: Context) -> list[tirx.Stmt]:
    """Declares the flat buffer ``data`` at ``offset`` bytes of the worker's scratch."""
    pointer_type = tvm_ir.PointerType(tvm_ir.PrimType(str(data.dtype)))
    pointer = tirx.Var(f"{data.name}_ptr", pointer_type)
    place = tvm_ir.Call(
        "tirx.handle_add_byte_offset", [ctx.scratch, tirx.const(offset, "int64")], ret_ty=pointer_type
    )
    return [tirx.Bind(pointer, place), tirx.DeclBuffer(data, data=pointer)]


def _has_value(stmt: Alloc) -> bool:
    return stmt.init is not None or stmt.buffer.scope() == "local.var"


def _first_value(stmt: Alloc, ctx: Context) -> list[tirx.Stmt]:
    if not _has_value(stmt):
        return []
    storage = ctx.storages[stmt.buffer]
    zero = literal(0, storage.data.dtype, ctx.width)
    stored = zero if stmt.init is None else encode(ctx.value(stmt.init), storage.dtype)
    start = tirx.const(0, "int32")
    index = start if ctx.lanes is None else tirx.Ramp(start, tirx.const(1, "int32"), ctx.width)
    return [tirx.BufferStore(storage.data, spread(stored, ctx.width), [index])]
