"""The parameters of a kernel whose warps have roles: pointers, scalars, dims, tensor maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.launch import TensorMapCode, WindowCode
from tilec.backends.cuda.warp_roles.emit.build import i32, let
from tilec.backends.cuda.warp_roles.emit.context import TileContext
from tilec.backends.cuda.warp_roles.nodes import TensorMap, Window
from tilec.backends.cuda.warp_roles.tma import element_strides
from tilec.ir.exprs import cast_to, dtype_of
from tilec.ir.nodes import Alloc, Bind, Kernel, ScalarParam, TensorParam
from tilec.lowering.emission.parameters import TRAVELS, names, spelled
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.emission.texts import int_text

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_NO_VIEWS: Mapping[Var, Var] = {}
#: Extent of the flat buffers behind pointers.
_ENDLESS = 1 << 62


def map_code(found: TensorMap, kernel: Kernel, views: Mapping[Var, Var] = _NO_VIEWS) -> TensorMapCode:
    """A map as data, innermost axis first; ``views``: whose memory other names of its launch stand for."""
    spellings = names(kernel)
    root = views.get(found.buffer, found.buffer)
    index = next(i for i, tensor in enumerate(_tensors(kernel)) if tensor.same_as(root))
    size = element_bytes(str(found.buffer.dtype))

    def text(value: Expr | int) -> str:
        return int_text(spelled(value, kernel), spellings)

    strides = [f"({text(stride)}) * {size}" for stride in element_strides(found.buffer)[:-1]]
    return TensorMapCode(
        tensor=index,
        dtype=str(found.buffer.dtype),
        extents=tuple(text(extent) for extent in reversed(found.inside or found.buffer.shape)),
        strides=tuple(reversed(strides)),
        box=tuple(reversed(found.box)),
        swizzle=found.swizzle,
        window=None if found.window is None else _window_code(found.window),
        rest=found.rest,
    )


def _tensors(kernel: Kernel) -> list[Var]:
    """Those of the call, then those of the workspace."""
    of_call = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
    return of_call + [stmt.buffer for stmt in kernel.body if isinstance(stmt, Alloc)]


def _window_code(window: Window) -> WindowCode:
    return WindowCode(window.lower[::-1], window.upper[::-1], window.steps[::-1])


def declare(
    kernel: Kernel, maps: Sequence[TensorMap], ctx: TileContext, views: Mapping[Var, Var] = _NO_VIEWS
) -> None:
    """Adds the parameters of a launch to the function under way, and their values to ``ctx``."""
    buffers = _tensors(kernel)
    pointers = [T.arg(f"{buffer.name}_ptr", T.handle(_element(buffer), "global")) for buffer in buffers]
    scalars = {param.var: _scalar(param) for param in kernel.params if isinstance(param, ScalarParam)}
    dims = [(dim.var, T.arg(f"{dim.name}_dim", T.int64())) for dim in kernel.dims]
    ctx.maps = {found: T.arg(f"map_{number}", T.TensorMap()) for number, found in enumerate(maps)}
    for buffer, pointer in zip(buffers, pointers, strict=True):
        ctx.tensors[buffer] = T.decl_buffer((tirx.const(_ENDLESS, "int64"),), _element(buffer), data=pointer)
    ctx.tensors.update({view: ctx.tensors[root] for view, root in views.items()})
    for var, argument in scalars.items():
        ctx.env[var] = cast_to(argument, dtype_of(var))
    for var, argument in dims:
        if var is not None:
            ctx.env[var] = let(str(var.name), tirx.Cast(dtype_of(var), argument))
    for stmt in kernel.body:
        if isinstance(stmt, Bind):
            ctx.env[stmt.var] = let(str(stmt.var.name), ctx.value(stmt.value))


def grid_extent(ctx: TileContext, extent: Expr | int) -> Expr:
    """An extent of a launch's grid as int32."""
    if isinstance(extent, int):
        return i32(extent)
    return cast_to(ctx.value(extent), "int32")


def _element(buffer: Var) -> str:
    """The type behind a pointer; 8-bit floats are moved by TMA alone."""
    dtype = str(buffer.dtype)
    return "uint8" if dtype.startswith("float8") else dtype


def _scalar(param: ScalarParam) -> Var:
    dtype = dtype_of(param.var)
    return T.arg(f"{param.name}_arg", getattr(T, TRAVELS.get(dtype, dtype))())
