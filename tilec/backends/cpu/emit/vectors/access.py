"""Writing elements from CPU code, and where they lie: flat addresses, vectors along the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.aligned import lane_step
from tilec.backends.cpu.emit.vectors.first_lanes import (
    first_lanes,
    has_first_lanes,
    lanes_that_exist,
    store_first_lanes,
)
from tilec.backends.cpu.emit.vectors.lanes import Lanes, NotVectorisable
from tilec.backends.cpu.emit.vectors.pieces import WIDEST_GAP, elements_of
from tilec.backends.cpu.emit.vectors.some_lanes import (
    neighbours_that_exist,
    scatter_lanes,
    store_lanes,
    store_last_lane,
)
from tilec.backends.cpu.emit.vectors.streams import stream
from tilec.ir.exprs import all_of, dtype_of, int_value, linear_in, uses
from tilec.ir.nodes import is_global
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.emission.access import open_bounds
from tilec.lowering.emission.powers_of_two import divides
from tilec.lowering.emission.storage import Storage, convert, stored_type
from tilec.lowering.math.vectors import lanes_of, literal, spread, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


def store_element(
    buffer: Var,
    indices: Sequence[Expr],
    value: Expr,
    ctx: LaneContext,
    raw: bool = False,
    streams: bool = False,
) -> tirx.Stmt | None:
    """Writes a compute value, or what memory is to hold (``raw``), past the caches where it ``streams``;
    dropped outside of the buffer (None where that is certain)."""
    storage = ctx.storage(buffer)
    conds = open_bounds(buffer, indices, ctx)
    if conds is None:
        return None
    index = flat_index(storage, indices, ctx)
    lanes = lanes_of(index)
    if lanes == 1 and ctx.mask is not None and lanes_of(ctx.mask) > 1:
        _check_order(buffer, ctx)
        return _store_last(storage, index, value if raw else ctx.encode_in(buffer, value), conds, ctx)
    if lanes == 1 and lanes_of(value) > 1:
        raise NotVectorisable(
            f"all lanes write one element of {buffer.name}", "write it once, outside of the loop"
        )
    stored = spread(value if raw else ctx.encode_in(buffer, value), lanes)
    mask = _mask_of_store(buffer, indices, index, conds, ctx)
    if mask is not None:
        return _store_masked(storage, index, stored, mask, ctx)
    if ctx.mask is not None and (ctx.first is None or storage.copies > 1):
        stored = _kept(storage, index, stored, ctx)
    streamed = stream(storage, index, stored, ctx) if streams and ctx.first is None else None
    write = _written(storage, index, stored, ctx) if streamed is None else streamed
    if not conds:
        return write
    return tirx.IfThenElse(ctx.bounds(buffer, conds), write, None)


def _mask_of_store(
    buffer: Var, indices: Sequence[Expr], index: Expr, conds: list[Expr], ctx: LaneContext
) -> Expr | None:
    """The lanes that write by a mask; None where all do, where a blend serves, or no instruction has masks.
    An element of a tensor is not put back: another block may be writing there. One by one is as fast for what
    is only moved to places of its own, or where these are quotients of each lane."""
    if lanes_of(index) == 1 or ctx.first is not None:
        return None
    apart = not isinstance(index, tirx.Ramp)
    exists = ctx.value(all_of(conds)) if conds else None
    parts = lanes_of(exists) > 1 if exists is not None else False
    if parts and ctx.mask is None and apart and (ctx.moving or divides(indices, ctx)):
        return None
    blends = not apart and not is_global(buffer)
    if not parts and (ctx.mask is None or blends):
        return None
    masks = [spread(mask, lanes_of(index)) for mask in (ctx.mask, exists) if mask is not None]
    return masks[0] if len(masks) == 1 else tirx.And(*masks)


def _store_masked(storage: Storage, index: Expr, stored: Expr, mask: Expr, ctx: LaneContext) -> tirx.Stmt:
    """The store of the lanes of ``mask``, side by side or each to its place, the last of several to one."""
    base, dtype = _base(storage), stored_type(storage.dtype)
    if isinstance(index, tirx.Ramp) and int_value(index.stride) == 1:
        return store_lanes(base, index.base, mask, stored, dtype, ctx.target, ctx.functions)
    return scatter_lanes(base, index, mask, stored, dtype, ctx.functions)


def _check_order(buffer: Var, ctx: LaneContext) -> None:
    """NotVectorisable where a lane may read what lanes before it have stored."""
    items = accesses(ctx.lanes.body) if ctx.lanes is not None else []
    if any(item.buffer.same_as(buffer) and not item.is_write for item in items):
        raise NotVectorisable(
            f"iterations read what others before them store to {buffer.name}", "reduce along the loop"
        )


def _store_last(
    storage: Storage, index: Expr, stored: Expr, conds: list[Expr], ctx: LaneContext
) -> tirx.Stmt:
    """The store of an element that all lanes have in common, by the last of those that take part."""
    exists = [ctx.value(all_of(conds))] if conds else []
    lanes = lanes_of(ctx.mask)
    mask = tirx.And(ctx.mask, spread(exists[0], lanes)) if exists else ctx.mask
    dtype = stored_type(storage.dtype)
    return store_last_lane(_base(storage), index, mask, spread(stored, lanes), dtype, ctx.functions)


def _base(storage: Storage) -> Expr:
    return tirx.address_of(tirx.BufferLoad(storage.data, [tirx.const(0, storage.index_type)]))


def _written(storage: Storage, index: Expr, stored: Expr, ctx: LaneContext) -> tirx.Stmt:
    """The store of all lanes, or of the first ones where these alone take part."""
    if ctx.first is None or storage.copies > 1:
        return tirx.BufferStore(storage.data, stored, [index])
    place = _place_of_run(storage, index, ctx)
    return store_first_lanes(place, ctx.first, stored, storage.dtype, ctx.functions)


def read_first(storage: Storage, indices: Sequence[Expr], count: Expr, ctx: LaneContext) -> Expr:
    """What memory holds of an element that all lanes read, or of the first ``count`` of a run of them."""
    index = flat_index(storage, indices, ctx)
    if lanes_of(index) == 1 or storage.copies > 1:
        return tirx.BufferLoad(storage.data, [index])
    if _is_spread(storage, index, ctx):
        return _spread_first(storage, index, count, ctx)
    place = _place_of_run(storage, index, ctx)
    return first_lanes(place, count, storage.dtype, lanes_of(index), ctx.functions)


def _is_spread(storage: Storage, index: Expr, ctx: LaneContext) -> bool:
    """Whether lanes read elements near to each other, which vectors bring along with those between."""
    step = int_value(index.stride) if isinstance(index, tirx.Ramp) else None
    return 1 < (step or 0) <= WIDEST_GAP and has_first_lanes(ctx.target, storage.dtype)


def _spread_first(storage: Storage, index: Expr, count: Expr, ctx: LaneContext) -> Expr:
    """Every second to fourth element, as far as the first ``count`` lanes have one."""
    lanes, step, dtype = lanes_of(index), int(index.stride), storage.dtype
    left, vectors = (count - 1) * step + 1, []
    for start in range(0, lanes * step, lanes):
        place = tirx.address_of(tirx.BufferLoad(storage.data, [index.base + start]))
        vectors.append(first_lanes(place, left - start, dtype, lanes, ctx.functions))
    places = [lane * step for lane in range(lanes)]
    return elements_of(vectors, range(lanes * step), places)


def read_existing(storage: Storage, indices: Sequence[Expr], exists: Expr, ctx: LaneContext) -> Expr | None:
    """What memory holds of elements, of each lane's where one ``exists``, else zero: of neighbours, or of
    those that lanes look up. None where all lanes have one, or to move what is found or hardly compute with
    it, which takes as long one by one."""
    index = flat_index(storage, indices, ctx)
    if lanes_of(index) == 1:
        return None
    base = _base(storage)
    if isinstance(index, tirx.Ramp) and int_value(index.stride) == 1:
        dtype = stored_type(storage.dtype)
        return neighbours_that_exist(base, index.base, exists, dtype, ctx.target, ctx.functions)
    if ctx.moving:
        return None
    if has_first_lanes(ctx.target, storage.dtype):
        return lanes_that_exist(base, index, exists, storage.dtype, ctx.target, ctx.functions)
    converts = storage.dtype != "float16" or ctx.target.has_half_conversions
    return None if ctx.light and converts else _read_by_lane(storage, index, exists, ctx)


def _read_by_lane(storage: Storage, index: Expr, exists: Expr, ctx: LaneContext) -> Expr | None:
    """One load for each lane, where no instruction looks elements up: of the first element where none exists,
    which is there unless the buffer may be empty."""
    if any(ctx.facts.prove(extent > tirx.const(0, dtype_of(extent))) is not True for extent in storage.shape):
        return None
    lanes, dtype = lanes_of(index), stored_type(storage.dtype)
    at = tirx.Select(exists, index, literal(0, storage.index_type, lanes))
    found = tirx.BufferLoad(storage.data, [at])
    return tirx.Select(_in_other_words(exists), found, literal(0, dtype, lanes))


def _in_other_words(cond: Expr) -> Expr:
    """A condition of lanes that TVM does not take for ``cond``: inside of a choice by ``cond`` it would have
    every other one hold, also in the place of a load, which all lanes run."""
    lanes = lanes_of(cond)
    return tirx.NE(tirx.Cast(with_lanes("int8", lanes), cond), literal(0, "int8", lanes))


def _place_of_run(storage: Storage, index: Expr, ctx: LaneContext) -> Expr:
    """The address of the first of elements side by side."""
    runs = isinstance(index, tirx.Ramp) and int_value(index.stride) == 1
    if not runs or not has_first_lanes(ctx.target, storage.dtype):
        raise NotVectorisable("the last lanes lie apart, or have no masks")
    return tirx.address_of(tirx.BufferLoad(storage.data, [index.base]))


def _kept(storage: Storage, index: Expr, stored: Expr, ctx: LaneContext) -> Expr:
    """``stored`` where the mask holds, what is there already elsewhere."""
    if not isinstance(index, tirx.Ramp):
        raise NotVectorisable("some lanes may write one element", "give each iteration an element of its own")
    return tirx.Select(ctx.mask, stored, tirx.BufferLoad(storage.data, [index]))


def flat_index(storage: Storage, indices: Sequence[Expr], ctx: LaneContext) -> Expr:
    """Where an element lies in ``storage.data``: a scalar, a ramp along the lanes, or one index per lane."""
    lanes = ctx.lanes
    inlined = [ctx.facts.inline(index) for index in indices]
    if lanes is not None and storage.copies > 1:
        step = tirx.const(1, storage.index_type)
        if any(varies(index, ctx) for index in inlined):
            own = tirx.Ramp(tirx.const(0, storage.index_type), step, lanes.width)
            return (
                _gathered(storage, inlined, ctx) * literal(storage.copies, storage.index_type, lanes.width)
                + own
            )
        return tirx.Ramp(storage.offset([ctx.value(index) for index in inlined]), step, lanes.width)
    if lanes is None or not any(varies(index, ctx) for index in inlined):
        return storage.offset([ctx.value(index) for index in inlined])
    steps = [_step(index, lanes, ctx) for index in inlined]
    if storage.layout is not None or None in steps:
        return _gathered(storage, inlined, ctx)
    return _ramp(storage, inlined, [step or 0 for step in steps], lanes, ctx)


def varies(expr: Expr, ctx: LaneContext) -> bool:
    """Whether ``expr`` differs between lanes."""
    return lanes_of(ctx.value(expr)) > 1


def _step(index: Expr, lanes: Lanes, ctx: LaneContext) -> int | None:
    """How far ``index`` moves from one lane to the next; None if that is no constant."""
    if not uses(index, (lanes.var,)):
        return None if varies(index, ctx) else 0
    linear = linear_in(index, [lanes.var])
    if not linear or varies(linear[1], ctx):
        return lane_step(index, lanes, ctx)
    return int_value(linear[0])


def _ramp(
    storage: Storage, indices: Sequence[Expr], steps: Sequence[int], lanes: Lanes, ctx: LaneContext
) -> Expr:
    with ctx.scope(), ctx.lane_scope(None):
        ctx.env[lanes.var] = lanes.base
        base = storage.offset([ctx.value(index) for index in indices])
    stride = tirx.const(0, storage.index_type)
    for step, factor in zip(steps, storage.strides, strict=True):
        if step:
            stride = stride + tirx.const(step, storage.index_type) * factor
    return tirx.Ramp(base, stride, lanes.width)


def _gathered(storage: Storage, indices: Sequence[Expr], ctx: LaneContext) -> Expr:
    """One address per lane."""
    width = ctx.width
    if storage.layout is not None:
        return storage.layout.offset([ctx.value(index) for index in indices])
    total = literal(0, storage.index_type, width)
    for index, stride in zip(indices, storage.strides, strict=True):
        value = convert(ctx.value(index), storage.index_type)
        total = total + spread(value, width) * spread(stride, width)
    return total
