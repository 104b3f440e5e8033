"""Choices between an element and something else, by a load under a predicate.

    inside ? X[n, h, w] : 0    ->    tilec_take_element(&X[n, h, w], inside)
    j < k ? tile[k, j] : 0     ->    element = tile[k, j], then j < k ? element : 0

Compilers make a branch of a choice whose load may not run where it is not taken, compute the place in it, and
convert there what was loaded: a thread with 64 of them waits for memory 64 times in turn, and a 7 x 7
convolution over 3 channels took 1053 us for 304 on an H200. Elements of tensors that nothing writes while the
launch runs can be read at any time, and where the predicate does not hold nothing is read. Those of shared
tiles that surely exist are read in any case: what other threads make of them meanwhile is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.device.moves import take_element
from tilec.ir.exprs import (
    BINARY,
    COMPARE,
    LOGIC,
    all_of,
    choice_of,
    dtype_of,
    each_once,
    int_value,
    loads,
    operands,
    same,
    walk,
)
from tilec.lowering.analysis.conditions import has_quotient
from tilec.lowering.emission.access import exists, open_bounds
from tilec.lowering.emission.storage import convert, element_bytes, stored_type
from tilec.lowering.math.vectors import lanes_of, reinterpreted

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.lowering.emission.storage import Storage

#: What both sides of a choice are computed of, whichever is taken.
_CHEAP = (
    Var, tirx.IntImm, tirx.FloatImm, TensorLoad, tirx.Cast, tirx.Not, tirx.BitwiseNot,
    *BINARY, *COMPARE, *LOGIC,
)  # fmt: skip
#: Loads of a choice, and operations on what they load: more are worth a branch.
_LOADS, _STEPS = 2, 6
#: Bytes of elements.
_SIZES = (1, 2, 4, 8)
#: The last place that an int32 counts.
_LAST = 2**31 - 1


def tested_choice(
    cond: Expr, true: Expr, false: Expr, ctx: DeviceContext, made: Callable[[Expr], Expr]
) -> Expr | None:
    """The choice with both sides computed by ``made``, their elements read under a predicate; None where a
    branch does, or has to do."""
    sides, asked = (true, false), list(loads(cond))
    more = any(not any(same(load, other) for other in asked) for side in sides for load in loads(side))
    plain = all(isinstance(node, _CHEAP) for node in walk(cond))
    if not more or not plain or not all(_is_free(side, ctx) for side in sides):
        return None
    test = ctx.test(cond)
    if lanes_of(test) > 1:
        return None
    elements = _elements_of_tiles(sides, ctx)
    with ctx.hoist_scope([(load, element) for load, element, _ in elements]):
        with ctx.facts.assume(cond), ctx.under(test):
            taken = made(true)
        with ctx.facts.assume(cond, False), ctx.under(tirx.Not(test)):
            other = made(false)
    found: Expr = tirx.Select(test, taken, other)
    for _, element, bits in reversed(elements):
        found = tirx.Let(element, bits, found)
    return found


def _elements_of_tiles(sides: Sequence[Expr], ctx: DeviceContext) -> list[tuple[TensorLoad, Var, Expr]]:
    """The elements of shared tiles that sides of a choice have, as memory holds them, with names: read before
    anything is known of the choice, where those surely exist."""
    every = each_once(load for side in sides for load in loads(side) if load.source not in ctx.lasting)
    found: list[tuple[TensorLoad, Var, Expr]] = []
    for load in every:
        if not any(same(load, other) for other, _ in ctx.hoisted):
            bits = ctx.raw(load)
            found.append((load, ctx.fresh("element", dtype_of(bits)), bits))
    return found


def _is_free(side: Expr, ctx: DeviceContext) -> bool:
    """Whether a side may be computed, its elements under a predicate, where it is not taken."""
    found = list(loads(side))
    plain = all(isinstance(node, _CHEAP) or choice_of(node) for node in walk(side))
    few = len(found) <= _LOADS and _steps(side) <= _STEPS
    return plain and few and all(_is_readable(each, ctx) for each in found)


def _is_readable(load: TensorLoad, ctx: DeviceContext) -> bool:
    """Whether an element of memory may be read where nothing asks for it, or under a predicate."""
    if load.source in ctx.lasting:
        return element_bytes(str(load.source.dtype)) in _SIZES
    return load.source.scope() == "shared.dyn" and exists(load, ctx.facts)


def _steps(expr: Expr) -> int:
    """How many operations there are on what is loaded."""
    parts = () if isinstance(expr, TensorLoad) else operands(expr)
    return bool(parts) + sum(map(_steps, parts))


def tested_load(expr: TensorLoad, ctx: DeviceContext) -> Expr | None:
    """What memory holds of an element where it exists and the choices around take it, zero elsewhere; None
    where nothing is asked, or but whether a place exists that is told at once, for which compilers make no
    branch, or the element is none of a tensor that lasts."""
    if expr.source not in ctx.lasting or not (ctx.wanted or _is_looked_up(expr, ctx)):
        return None
    conds = open_bounds(expr.source, tuple(expr.indices), ctx)
    if conds is None or not (ctx.wanted or conds):
        return None
    storage = ctx.storage(expr.source)
    place = _narrow(storage).offset([ctx.value(index) for index in expr.indices])
    tests = [*ctx.wanted, *([ctx.bounds(expr.source, conds)] if conds else [])]
    start = storage.data.ptr_to([tirx.const(0, "int64")])
    take = take_element(element_bytes(storage.dtype), dtype_of(place))
    return reinterpreted(stored_type(storage.dtype), take.call(start, place, all_of(tests)))


def _is_looked_up(expr: TensorLoad, ctx: DeviceContext) -> bool:
    """Whether it takes a quotient or another element to tell the place of an element."""
    indices = map(ctx.facts.inline, expr.indices)
    return any(has_quotient(index) or next(loads(index), None) is not None for index in indices)


def _narrow(storage: Storage) -> Storage:
    """A tensor whose places all fit int32 with places of that type: quotients in them take half as long."""
    last = 0
    for extent, stride in zip(storage.shape, storage.strides, strict=True):
        length, step = int_value(extent), int_value(stride)
        if storage.layout is not None or length is None or step is None:
            return storage
        last += (length - 1) * abs(step)
    if last * storage.copies > _LAST:
        return storage
    narrow = tuple(convert(stride, "int32") for stride in storage.strides)
    return replace(storage, strides=narrow, index_type="int32")
