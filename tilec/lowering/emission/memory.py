"""Tiles as flat memory: how large they are, and the storage that emission gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.exprs import int_value
from tilec.lowering.emission.storage import Storage, element_bytes, stored_type
from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr, Var

    from tilec.ir.layout import Layout
    from tilec.ir.nodes import Alloc
    from tilec.lowering.emission.context import Context


def flat_memory(
    buffer: Var,
    size: int,
    ctx: Context,
    scope: str = "",
    layout: Layout | None = None,
    copies: int = 1,
    kind: Callable[..., Storage] = Storage,
) -> Var:
    """A flat TIR buffer of ``size`` times ``copies`` elements, which is from here on the storage (as
    ``kind`` makes it) of a tile."""
    dtype, shape = str(buffer.dtype), static_shape(buffer)
    name = ctx.fresh(buffer.name, "int32").name
    data = tirx.decl_buffer((size * copies,), stored_type(dtype), name=name, scope=scope)
    bounds = tuple(tirx.const(extent, "int32") for extent in shape)
    ctx.storages[buffer] = kind(data, dtype, bounds, row_major_strides(shape), "int32", layout, copies)
    return data


def first_value(stmt: Alloc, ctx: Context, copies: int = 1) -> list[tirx.Stmt]:
    """What sets memory to its first value, which variables have."""
    if stmt.init is None and stmt.buffer.scope() != "local.var":
        return []
    storage, start = ctx.storage(stmt.buffer), tirx.const(0, "int32")
    zero = tirx.const(0, str(storage.data.dtype))
    stored = zero if stmt.init is None else ctx.encode(ctx.value(stmt.init), storage.dtype)
    index = start if copies == 1 else tirx.Ramp(start, tirx.const(1, "int32"), copies)
    return [tirx.BufferStore(storage.data, spread(stored, copies), [index])]


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


def tile_bytes(stmt: Alloc) -> int:
    """Bytes of a tile, gaps and padding of its layout included."""
    return elements(stmt) * element_bytes(str(stmt.buffer.dtype))


def whole_units(size: int, unit: int) -> int:
    """``size`` bytes rounded up to a multiple of ``unit``."""
    return -(-size // unit) * unit
