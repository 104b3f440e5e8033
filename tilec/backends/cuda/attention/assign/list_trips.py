"""Trips that a condition picks, such as blocks of keys that a mask lets through, are listed in front.

    for k in trips: if picked(k): body    ->    for n in range(count[block]): k = trip[block, n]; body

Every role walks over the trips that there are, without a branch around its loads and products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.attention.assign.order import growth, without_loads
from tilec.ir.exprs import as_expr, cast_to, choice_of, dtype_of, inlined, int_value, loads, substitute, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Fill,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Region,
    Scan,
    Stmt,
    Store,
    walk,
)
from tilec.ir.schedule import Schedule
from tilec.ir.serial import serial_loop
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Trips that a block of the launch in front, one warp, looks at together.
_TOGETHER = 128
#: Tables of more elements than 32 bits count are no problem.
_INDEX = "int64"


@dataclass(frozen=True, eq=False)
class _Picked:
    """A loop from 0 to ``stop`` whose trips are ``names`` and a branch on ``cond``, both in terms of what is
    there in front of the loop and of its variable; ``most`` trips in any block, or fewer."""

    loop: Pipelined
    names: tuple[Stmt, ...]
    branch: If
    cond: Expr
    stop: Expr
    most: Expr


def with_listed_trips(launch: Launch) -> tuple[Launch, Block]:
    """``launch`` with its loop over the trips of a list, and the statements that make the list; itself and
    none where no loop of it is one branch on what tensors say that it does not write."""
    picked = _picked(launch)
    if picked is None:
        return launch, ()
    shape = tuple(_wide(extent) for extent in reversed(launch.grid))
    count = tirx.decl_buffer(shape, "int32", "count", scope="global.workspace")
    trips = tirx.decl_buffer((*shape, _wide(picked.most)), "int32", "trips", scope="global.workspace")
    body = tuple(_listed(stmt, picked, count, trips, launch) for stmt in launch.body)
    made = replace(launch, body=body, schedule=replace(launch.schedule, pdl=True))
    return made, (Alloc(count), Alloc(trips), _listing(launch, picked, count, trips))


def _wide(value: Expr | int) -> Expr:
    return tirx.const(value, _INDEX) if isinstance(value, int) else cast_to(value, _INDEX)


# ---- the loop ----


def _picked(launch: Launch) -> _Picked | None:
    loops = [stmt for stmt in launch.body if isinstance(stmt, Pipelined)]
    if len(loops) != 1 or int_value(loops[0].start) != 0 or not loops[0].body:
        return None
    (loop,) = loops
    *names, branch = loop.body
    if (
        not isinstance(branch, If)
        or branch.orelse
        or not all(isinstance(stmt, (Alloc, Bind)) for stmt in names)
    ):
        return None
    values = values_of((*launch.body, *names))
    cond, stop = inlined(branch.cond, values), inlined(loop.stop, values)
    most = _most(stop, launch)
    if most is None or not _is_told((cond, stop), launch):
        return None
    return _Picked(loop, tuple(names), branch, cond, stop, most)


def _is_told(exprs: tuple[Expr, Expr], launch: Launch) -> bool:
    """Whether another launch can compute these, the first one of tensors."""
    sources = {load.source for expr in exprs for load in loads(expr)}
    local = {stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    return (
        next(loads(exprs[0]), None) is not None
        and not sources & (local | written_in(launch.body))
        and not any(uses(expr, launch.thread_vars) for expr in exprs)
        and not any(is_foreign(node) for expr in exprs for node in walk_expr(expr))
    )


def _most(stop: Expr, launch: Launch) -> Expr | None:
    """What no block has more trips than, of dims alone; None where there is no such bound."""
    bound = without_loads(stop)
    if bound is None or any(choice_of(node) for node in walk_expr(bound)):
        return None
    for var, extent in zip(launch.block_vars, launch.grid, strict=True):
        if growth(bound, var) is None:
            return None
        last = as_expr(extent, dtype_of(var)) - 1
        bound = substitute(bound, {var: cast_to(last, dtype_of(var))})
    return bound


def _listed(stmt: Stmt, picked: _Picked, count: Var, trips: Var, launch: Launch) -> Stmt:
    if stmt is not picked.loop:
        return stmt
    loop, block = picked.loop, _place(launch.block_vars)
    number = tirx.Var("number", dtype_of(loop.var))
    place = [*block, _wide(number)]
    trip = Bind(loop.var, cast_to(tirx.BufferLoad(trips, place), dtype_of(loop.var)))
    stop = cast_to(tirx.BufferLoad(count, block), dtype_of(loop.var))
    body = (trip, *picked.names, *picked.branch.then)
    return replace(loop, var=number, stop=stop, body=body, stage=None, order=None)


def _place(block_vars: tuple[Var, ...]) -> list[Expr]:
    return [_wide(var) for var in reversed(block_vars)]


# ---- the launch that lists ----


def _listing(launch: Launch, picked: _Picked, count: Var, trips: Var) -> Launch:
    """A block for each of ``launch``: it looks at some trips together, and counts those that are picked."""
    block = {var: tirx.Var(var.name, dtype_of(var)) for var in launch.block_vars}
    place = _place(tuple(block.values()))
    found, places, sums = (
        tirx.decl_buffer((size,), "int32", name, scope="local.fragment")
        for name, size in (("found", _TOGETHER), ("places", _TOGETHER), ("sums", 1))
    )
    zero, lane = tirx.const(0, "int32"), tirx.Var("lane", "int32")
    sum_of = Region(sums, (zero,), (1,))
    step = tirx.Var("step", "int32")
    stop = cast_to(substitute(picked.stop, block), "int32")
    body = tuple(_step(picked, block, place, trips, (found, places, sums), step))
    return Launch(
        launch.grid,
        tuple(block.values()),
        (WARP, 1, 1),
        (
            *map(Alloc, (found, places, sums)),
            Fill(sum_of, zero),
            serial_loop(step, tirx.floordiv(stop + (_TOGETHER - 1), _TOGETHER), body),
            Parallel((lane,), (1,), (Store(count, tuple(place), tirx.BufferLoad(sums, [lane])),)),
        ),
        Schedule(pdl=True),
    )


def _step(
    picked: _Picked,
    block: Mapping[Var, Var],
    place: list[Expr],
    trips: Var,
    fragments: tuple[Var, Var, Var],
    step: Var,
) -> Iterator[Stmt]:
    found, places, sums = fragments
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    whole = [
        Region(each, (zero,), (size,))
        for each, size in zip(fragments, (_TOGETHER, _TOGETHER, 1), strict=True)
    ]
    at, to = tirx.Var("at", "int32"), tirx.Var("to", "int32")
    names = {**block, picked.loop.var: cast_to(step * _TOGETHER + at, dtype_of(picked.loop.var))}
    cond = tirx.if_then_else(substitute(picked.cond, names), one, zero)
    inside = names[picked.loop.var] < substitute(picked.stop, block)
    yield Parallel((at,), (_TOGETHER,), (Store(found, (at,), tirx.if_then_else(inside, cond, zero)),))
    yield Scan("sum", whole[0], whole[1], 0)
    number = tirx.BufferLoad(sums, [zero]) + tirx.BufferLoad(places, [to]) - one
    store = Store(trips, (*place, _wide(number)), step * _TOGETHER + to)
    is_picked = tirx.NE(tirx.BufferLoad(found, [to]), zero)
    yield Parallel((to,), (_TOGETHER,), (If(is_picked, (store,)),))
    yield Reduce("sum", whole[0], whole[2], 0, False)
