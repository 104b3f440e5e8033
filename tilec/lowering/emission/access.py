"""Elements of buffers: which bounds are open, how one is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value
from tilec.lowering.emission.storage import compute_type, stored_type
from tilec.lowering.math.vectors import lanes_of, literal, spread

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.lowering.emission.context import Context


def open_bounds(buffer: Var, indices: Sequence[Expr], ctx: Context) -> list[Expr] | None:
    """The conditions under which an element exists that are not known to hold; None if it never does."""
    return bounds_to_test(indices, ctx.storage(buffer).shape, ctx.facts)


def bounds_to_test(indices: Sequence[Expr], shape: Sequence[Expr], facts: Facts) -> list[Expr] | None:
    """`open_bounds` of a buffer of this shape."""
    conds: list[Expr] = []
    for index, extent in zip(indices, shape, strict=True):
        if facts.is_within(index, extent):
            continue
        for cond in _bounds(index, extent):
            verdict = facts.prove(cond)
            if verdict is False:
                return None
            if verdict is None:
                conds.append(cond)
    return conds


def exists(load: TensorLoad, facts: Facts) -> bool:
    """Whether an element is known to be inside of its buffer."""
    return bounds_to_test(tuple(load.indices), tuple(load.source.shape), facts) == []


def _bounds(index: Expr, extent: Expr) -> tuple[Expr, ...]:
    wide = "int64" if "int64" in (dtype_of(index), dtype_of(extent)) else "int32"
    index, extent = convert_index(index, wide), convert_index(extent, wide)
    return tirx.LT(index, extent), tirx.GE(index, tirx.const(0, wide))


def convert_index(index: Expr, dtype: str) -> Expr:
    """An index in another integer type."""
    if dtype_of(index) == dtype:
        return index
    value = int_value(index)
    return tirx.const(value, dtype) if value is not None else tirx.Cast(dtype, index)


def clamped(index: Expr, low: Expr, high: Expr) -> Expr:
    """An index cut to ``low`` and ``high``, of whose type the result is, before it is cast to that."""
    wide, dtype = dtype_of(index), dtype_of(low)
    low, high = convert_index(low, wide), convert_index(high, wide)
    return convert_index(tirx.max(tirx.min(index, high), low), dtype)


def load_element(expr: TensorLoad, ctx: Context, raw: bool = False) -> Expr:
    """The compute value of an element, or what memory holds of it (``raw``): 0 outside of the buffer."""
    buffer, indices = expr.source, tuple(expr.indices)
    storage = ctx.storage(buffer)
    zero = literal(0, stored_type(storage.dtype) if raw else compute_type(storage.dtype))
    conds = open_bounds(buffer, indices, ctx)
    if conds is None:
        return zero
    found = ctx.read_existing(storage, indices, conds) if conds else None
    if found is not None:
        return found if raw else ctx.decode(found, storage.dtype)
    value = ctx.read(storage, indices)
    value = value if raw else ctx.decode(value, storage.dtype)
    if not conds:
        return value
    return tirx.if_then_else(ctx.bounds(buffer, conds), value, spread(zero, lanes_of(value)))
