"""The C entry of a launch: parameters, the loop over linear block indices, memory of all buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

import tilec.lowering.cpu.emit_atomic
import tilec.lowering.cpu.emit_loops
import tilec.lowering.cpu.emit_parallel
import tilec.lowering.cpu.emit_product
import tilec.lowering.cpu.emit_transpose
import tilec.lowering.cpu.emit_words  # noqa: F401  (registers PackWords)
from tilec.ir.nodes import Alloc, Bind, Kernel, Launch, ScalarParam, TensorParam
from tilec.lowering.cpu.context import Context
from tilec.lowering.cpu.emit import emit, sequence
from tilec.lowering.cpu.math.float8 import FLOAT8_TYPES
from tilec.lowering.cpu.place_tiles import scratch_bytes
from tilec.lowering.cpu.storage import Storage, element_bytes, stored_type
from tilec.lowering.cpu.uses import written_in
from tilec.lowering.exprs import dtype_of, int_value, substitute
from tilec.lowering.facts import Facts
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch
from tilec.lowering.texts import int_text

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: How scalar arguments travel through C where that is not their own type.
_TRAVELS = {"bool": "int32", **dict.fromkeys(("float16", "bfloat16", *FLOAT8_TYPES), "float32")}

#: Extent of the flat buffers behind pointers, whose length only the bounds of the tensor know.
_ENDLESS = 1 << 62


def lower_kernel(kernel: Kernel, target: Target) -> LoweredKernel:
    """TIR of every launch of a kernel whose tiles are placed."""
    launches = tuple(_Entry(kernel, launch, target).lower() for launch in kernel.launches)
    workspace = tuple(_workspace(alloc, kernel) for alloc in _workspaces(kernel))
    return LoweredKernel(kernel.name, launches, workspace)


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


@dataclass(eq=False)
class _Entry:
    """Builds the function of one launch."""

    kernel: Kernel
    launch: Launch
    target: Target

    def lower(self) -> LoweredLaunch:
        """The function and how to launch it."""
        ctx = Context(self.target, Facts(self.kernel, written_in(self.launch.body)))
        params, setup = self._parameters(ctx)
        scratch = tirx.Var("scratch", tvm_ir.PointerType(tvm_ir.PrimType("uint8")))
        ctx.scratch = scratch
        begin, end = tirx.Var("begin", "int64"), tirx.Var("end", "int64")
        setup += [stmt for stmt in (emit(bind, ctx) for bind in self._bindings()) if stmt is not None]
        body = sequence([*setup, self._blocks(ctx, begin, end)])
        func = tirx.PrimFunc([*params, scratch, begin, end], body).with_attr("tirx.noalias", True)
        spellings = names(self.kernel)
        grid = tuple(int_text(spelled(extent, self.kernel), spellings) for extent in self.launch.grid)
        return LoweredLaunch(func, grid, self.launch.threads, scratch_bytes(self.launch), tuple(ctx.notes))

    def _bindings(self) -> list[Bind]:
        return [stmt for stmt in self.kernel.body if isinstance(stmt, Bind)]

    def _parameters(self, ctx: Context) -> tuple[list[Var], list[tirx.Stmt]]:
        """The C parameters before scratch, and the statements that make kernel variables of them."""
        tensors = [param for param in self.kernel.params if isinstance(param, TensorParam)]
        scalars = [param for param in self.kernel.params if isinstance(param, ScalarParam)]
        buffers = [param.buffer for param in tensors] + [alloc.buffer for alloc in _workspaces(self.kernel)]
        pointers = [self._pointer(buffer, ctx) for buffer in buffers]
        setup: list[tirx.Stmt] = []
        values = [self._scalar(param, ctx, setup) for param in scalars]
        dims = [self._dim(dim.name, dim.var, ctx, setup) for dim in self.kernel.dims]
        for buffer, pointer in zip(buffers, pointers, strict=True):
            setup.append(self._global(buffer, pointer, ctx))
        return [*pointers, *values, *dims], setup

    def _pointer(self, buffer: Var, ctx: Context) -> Var:
        name = ctx.fresh(f"{buffer.name}_ptr", "int32").name
        return tirx.Var(name, tvm_ir.PointerType(tvm_ir.PrimType(stored_type(str(buffer.dtype)))))

    def _scalar(self, param: ScalarParam, ctx: Context, setup: list[tirx.Stmt]) -> Var:
        from tilec.lowering.cpu.storage import compute_type, convert, rounded

        dtype = dtype_of(param.var)
        argument = ctx.fresh(f"{param.var.name}_arg", _TRAVELS.get(dtype, dtype))
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

    def _global(self, buffer: Var, pointer: Var, ctx: Context) -> tirx.Stmt:
        """Declares the memory behind a pointer."""
        dtype = str(buffer.dtype)
        data = tirx.decl_buffer((tirx.const(_ENDLESS, "int64"),), stored_type(dtype), name=str(buffer.name))
        ctx.storages[buffer] = Storage(data, dtype, tuple(buffer.shape), self._strides(buffer, ctx), "int64")
        return tirx.DeclBuffer(data, data=pointer)

    def _strides(self, buffer: Var, ctx: Context) -> tuple[Expr, ...]:
        """Element strides in 64 bits, of dims' values."""
        given = [_wide(ctx.value(stride)) for stride in buffer.strides]
        if given:
            return tuple(given)
        strides, stride = [], tirx.const(1, "int64")
        for extent in reversed(list(buffer.shape)):
            strides.append(stride)
            stride = stride * _wide(ctx.value(extent))
        return tuple(reversed(strides))

    def _blocks(self, ctx: Context, begin: Var, end: Var) -> tirx.Stmt:
        """The loop over the blocks of this call."""
        linear = tirx.Var("block", "int64")
        parts, rest = [], linear
        extents = [_wide(ctx.value(_expr(extent))) for extent in self.launch.grid]
        for axis, (var, extent) in enumerate(zip(self.launch.block_vars, extents, strict=True)):
            last = axis == len(extents) - 1
            index = rest if last else tirx.truncmod(rest, extent)
            rest = rest if last else tirx.truncdiv(rest, extent)
            ctx.facts.bind_range(var, 0, _expr(self.launch.grid[axis]))
            dtype = dtype_of(var)
            parts.append(tirx.Bind(ctx.define(var), index if dtype == "int64" else tirx.Cast(dtype, index)))
        body = ctx.block(self.launch.body)
        parts.append(body if body is not None else tirx.Evaluate(tirx.const(0)))
        return tirx.For(linear, begin, end - begin, tirx.ForKind.SERIAL, sequence(parts))


def _wide(value: Expr) -> Expr:
    constant = int_value(value)
    if constant is not None:
        return tirx.const(constant, "int64")
    return value if dtype_of(value) == "int64" else tirx.Cast("int64", value)


def _expr(extent: int | Expr) -> Expr:
    return tirx.const(extent, "int32") if isinstance(extent, int) else extent
