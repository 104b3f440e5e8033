"""The parameters of a compiled launch: pointers, workspace slices, scalars and dims as kernel variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.ir.analysis.aliases import named_in
from tilec.ir.exprs import cast_to, dtype_of, int_value, substitute
from tilec.ir.nodes import Alloc, Bind, Kernel, Launch, ScalarParam, TensorParam
from tilec.lowering.analysis.conditions import has_quotient
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import (
    SMALL_FLOATS,
    Storage,
    compute_type,
    convert,
    element_bytes,
    rounded,
    stored_type,
)
from tilec.lowering.emission.texts import int_text
from tilec.lowering.lowered import OUTPUTS, OVERLAPPING

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.emission.context import Context

#: How scalar arguments travel through C where that is not their own type.
TRAVELS = {"bool": "int32", **dict.fromkeys(SMALL_FLOATS, "float32")}

#: Extent of the flat buffers behind pointers, whose length only the bounds of the tensor know.
_ENDLESS = 1 << 62


def _workspaces(kernel: Kernel) -> list[Alloc]:
    return [stmt for stmt in kernel.body if isinstance(stmt, Alloc)]


def _workspace(alloc: Alloc, kernel: Kernel) -> tuple[str, str]:
    """Name and size in bytes (an integer text) of one workspace buffer."""
    size: Expr = tirx.const(element_bytes(str(alloc.buffer.dtype)), "int64")
    for extent in alloc.buffer.shape:
        size = size * tirx.Cast("int64", spelled(extent, kernel))
    return str(alloc.buffer.name), int_text(size, names(kernel))


def names(kernel: Kernel) -> dict[Var, str]:
    """The names of run-time dims and scalar parameters in integer texts."""
    dims = {dim.var: dim.name for dim in kernel.dims if dim.var is not None}
    return {param.var: param.name for param in kernel.params if isinstance(param, ScalarParam)} | dims


def spelled(extent: int | Expr, kernel: Kernel) -> int | Expr:
    """A grid or workspace extent over dims and parameters alone."""
    if isinstance(extent, int):
        return extent
    for stmt in reversed(kernel.body):
        if isinstance(stmt, Bind):
            extent = substitute(extent, {stmt.var: stmt.value})
    return extent


def grid_texts(kernel: Kernel, launch: Launch) -> tuple[str, ...]:
    """The extents of a grid as integer texts."""
    spellings = names(kernel)
    return tuple(int_text(spelled(extent, kernel), spellings) for extent in launch.grid)


def workspace_slices(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """Name and size of every workspace buffer, in order."""
    return tuple(_workspace(alloc, kernel) for alloc in _workspaces(kernel))


@dataclass(frozen=True, eq=False)
class EntryParameters:
    """What every launch of ``kernel`` takes."""

    kernel: Kernel

    def bindings(self) -> list[Bind]:
        """The kernel's own bindings, before the launches."""
        return [stmt for stmt in self.kernel.body if isinstance(stmt, Bind)]

    def open(self, ctx: Context) -> tuple[list[Var], list[tirx.Stmt]]:
        """As `declare`, with the code of the kernel's own bindings."""
        params, setup = self.declare(ctx)
        bindings = (ctx.emit(bind) for bind in self.bindings())
        return params, [*setup, *(part for part in bindings if part is not None)]

    def declare(self, ctx: Context) -> tuple[list[Var], list[tirx.Stmt]]:
        """The C parameters, and the statements that make kernel variables of them."""
        tensors = [param for param in self.kernel.params if isinstance(param, TensorParam)]
        scalars = [param for param in self.kernel.params if isinstance(param, ScalarParam)]
        buffers = [param.buffer for param in tensors] + [alloc.buffer for alloc in _workspaces(self.kernel)]
        pointers = [self._pointer(buffer, ctx) for buffer in buffers]
        setup: list[tirx.Stmt] = []
        values = [self._scalar(param, ctx, setup) for param in scalars]
        dims = [self._dim(dim.name, dim.var, ctx, setup) for dim in self.kernel.dims]
        overlapping = named_in(self.kernel)
        for buffer, pointer in zip(buffers, pointers, strict=True):
            own = str(buffer.name) not in overlapping or buffer.scope() != "global"
            setup.append(
                declare_global(buffer, pointer, ctx) if own else _declare_overlapping(buffer, pointer, ctx)
            )
        return [*pointers, *values, *dims], setup

    def _pointer(self, buffer: Var, ctx: Context) -> Var:
        name = ctx.fresh(f"{buffer.name}_ptr", "int32").name
        return tirx.Var(name, tvm_ir.PointerType(tvm_ir.PrimType(stored_type(str(buffer.dtype)))))

    def _scalar(self, param: ScalarParam, ctx: Context, setup: list[tirx.Stmt]) -> Var:
        dtype = dtype_of(param.var)
        argument = ctx.fresh(f"{param.var.name}_arg", TRAVELS.get(dtype, dtype))
        value = rounded(convert(argument, compute_type(dtype)), dtype)
        setup.append(tirx.Bind(ctx.define(param.var, value), value))
        return argument

    def _dim(self, name: str, var: Var | None, ctx: Context, setup: list[tirx.Stmt]) -> Var:
        argument = ctx.fresh(f"{name}_arg", "int64")
        if var is not None and var not in ctx.env:
            dtype = dtype_of(var)
            value = argument if dtype == "int64" else tirx.Cast(dtype, argument)
            setup.append(tirx.Bind(ctx.define(var), value))
        return argument


def marked(func: tirx.PrimFunc, kernel: Kernel) -> tirx.PrimFunc:
    """``func`` with the places of the pointers to outputs and of those that may lead to the same memory,
    where there are some."""
    tensors = [param for param in kernel.params if isinstance(param, TensorParam)]
    names = named_in(kernel)
    shared = [place for place, param in enumerate(tensors) if str(param.buffer.name) in names]
    outputs = [place for place, param in enumerate(tensors) if param.access == "out"]
    for name, places in ((OVERLAPPING, shared), (OUTPUTS, outputs)):
        func = func.with_attr(name, places) if places else func
    return func


def declare_global(buffer: Var, pointer: Var, ctx: Context) -> tirx.Stmt:
    """Declares the memory behind a pointer."""
    dtype = str(buffer.dtype)
    data = tirx.decl_buffer((tirx.const(_ENDLESS, "int64"),), stored_type(dtype), name=str(buffer.name))
    binds = [_extent(buffer, extent, ctx) for extent in buffer.shape]
    shape = tuple(extent for extent, _ in binds)
    ctx.storages[buffer] = Storage(data, dtype, shape, _strides(buffer, shape, ctx), "int64")
    return sequence([*(bind for _, bind in binds if bind is not None), tirx.DeclBuffer(data, data=pointer)])


def _extent(buffer: Var, extent: Expr, ctx: Context) -> tuple[Expr, tirx.Stmt | None]:
    """An extent, under a name where it is a quotient by run-time values: each access asks for it."""
    if not has_quotient(extent):
        return extent, None
    name = tirx.Var(f"{buffer.name}_extent", dtype_of(extent))
    value = ctx.computed_once(ctx.value(extent))
    ctx.facts.learn_binding(name, extent)
    return name, tirx.Bind(ctx.define(name), value)


def _declare_overlapping(buffer: Var, pointer: Var, ctx: Context) -> tirx.Stmt:
    """Declares memory that others may lie in, too: behind a pointer that is computed, which TVM tells LLVM of
    as of one that may lead anywhere such pointers do. What lies behind parameters themselves stays apart."""
    other = tirx.Var(ctx.fresh(f"{buffer.name}_shared", "int32").name, pointer.ty)
    made = tvm_ir.Call("tirx.reinterpret", [pointer], ret_ty=pointer.ty)
    return tirx.SeqStmt([tirx.Bind(other, made), declare_global(buffer, other, ctx)])


def declare_at_address(stmt: Alloc, ctx: Context) -> tirx.Stmt:
    """Declares the memory at the address of a buffer that is no parameter."""
    buffer = stmt.buffer
    kind = tvm_ir.PointerType(tvm_ir.PrimType(stored_type(str(buffer.dtype))))
    pointer = tirx.Var(ctx.fresh(f"{buffer.name}_ptr", "int32").name, kind)
    address = ctx.fresh(f"{buffer.name}_address", "int64")
    made = tvm_ir.Call("tirx.reinterpret", [address], ret_ty=kind)
    declared = declare_global(buffer, pointer, ctx)
    return tirx.SeqStmt([tirx.Bind(address, ctx.value(stmt.init)), tirx.Bind(pointer, made), declared])


def _strides(buffer: Var, shape: tuple[Expr, ...], ctx: Context) -> tuple[Expr, ...]:
    """Element strides in 64 bits, of dims' values."""
    given = [in_64_bits(ctx.value(stride)) for stride in buffer.strides]
    if given:
        return tuple(given)
    strides, stride = [], tirx.const(1, "int64")
    for extent in reversed(shape):
        strides.append(stride)
        stride = stride * in_64_bits(ctx.value(extent))
    return tuple(reversed(strides))


def in_64_bits(value: Expr) -> Expr:
    """``value`` in 64 bits."""
    constant = int_value(value)
    if constant is not None:
        return tirx.const(constant, "int64")
    return cast_to(value, "int64")
