"""Trips in which a condition holds for every element run without asking.

    for k: S = QK; S[i, j] = k * 64 + j < n ? S[i, j] : -inf; ...

A loop with products is cut at the first trip in which a condition of a loop over elements fails somewhere (or
begins to hold everywhere): the trips before (or behind) have no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeGuard

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.trips.cuts import Cut, border, cut_of
from tilec.backends.cuda.nodes import BoxLoad
from tilec.backends.cuda.statement_roles.rings.blocks_together import lone_groups
from tilec.backends.cuda.statement_roles.split.registers import fits_registers, fits_twice
from tilec.backends.cuda.warp_roles.nodes import HANDED_ON
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import choice_of, dtype_of, int_value, loads, same_all, transform
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Bind, Block, For, Gemm, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.barriers import Group
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import opposite
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class SplitTrips(LaunchPass):
    """In: loops with products in launches whose warps have roles. Out: those in which trips decide conditions
    of Parallel loops as two, one of them without these, where registers hold all fragments of the trip at
    once: else the assembler spills more, having two loops. One warpgroup that computes alone may come to
    share its multiprocessor with that of another block: products wait for each other where it then lacks
    registers."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops cut; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        fits = fits_registers if lone_groups(launch) is None else _fits_beside_another
        return replace(launch, body=tuple(_group(stmt, fits) for stmt in launch.body))


def _fits_beside_another(trip: Block, group: Group) -> bool:
    return fits_twice(trip, group, HANDED_ON[1, 2][1])


def _group(stmt: Stmt, fits: Callable[[Block, Group], bool]) -> Stmt:
    if not isinstance(stmt, Group):
        return stmt

    def loop(inner: Stmt) -> Block:
        return _loop(inner) if _multiplies(inner) and fits(inner.body, stmt) else (inner,)

    return replace(
        stmt, body=rewrite_blocks(stmt.body, lambda block: list(chain.from_iterable(map(loop, block))))
    )


def _multiplies(stmt: Stmt) -> TypeGuard[For]:
    """Whether a statement is a loop over trips with products, one after the other."""
    if not isinstance(stmt, For) or stmt.kind != "serial" or int_value(stmt.step) != 1:
        return False
    return any(isinstance(inner, Gemm) for inner in stmt.body)


@dataclass(frozen=True, eq=False)
class _Choice:
    """A choice of an element's value that takes ``side`` in all trips on one side of ``cut``."""

    node: Expr
    side: Expr
    cut: Cut


def _loop(loop: For) -> Block:
    found = list(_choices(loop))
    found = [choice for choice in found if choice.cut.first == found[0].cut.first]
    if not found:
        return (loop,)
    cut, second = tirx.Var("border", dtype_of(loop.var)), tirx.Var(loop.var.name, dtype_of(loop.var))
    bare = _without(loop.body, found)
    bodies = (bare, loop.body) if found[0].cut.first else (loop.body, bare)
    again = renamed(copied(bodies[1]), {loop.var: second})
    return (
        Bind(cut, border([choice.cut for choice in found], loop.start, loop.stop)),
        replace(loop, stop=cut, body=bodies[0]),
        replace(loop, var=second, start=cut, body=again),
    )


def _choices(loop: For) -> Iterator[_Choice]:
    """The choices of the loop's elements that trips decide."""
    names = values_of(loop.body)
    changed = written_in(loop.body)
    for stmt in loop.body:
        if not isinstance(stmt, Parallel):
            continue
        extents = [int_value(extent) for extent in stmt.extents]
        ranges = {var: size for var, size in zip(stmt.vars, extents, strict=True) if size is not None}
        own = values_of(stmt.body)
        for store in stmt.body:
            if isinstance(store, Store) and len(ranges) == len(extents):
                yield from _decided(store.value, loop.var, ranges, {**names, **own}, changed)


def _decided(
    value: Expr, trip: Var, ranges: Mapping[Var, int], names: Mapping[Var, Expr], changed: Set[Var]
) -> Iterator[_Choice]:
    for node in walk_expr(value):
        found = choice_of(node)
        if found is None:
            continue
        cond, first, second = found
        cond = names.get(cond, cond)
        for holds, side in ((cond, first), (opposite(cond), second)):
            cut = cut_of(holds, trip, ranges, names)
            if cut is not None and not any(load.source in changed for load in loads(cut.at)):
                yield _Choice(node, side, cut)


def _without(body: Block, choices: list[_Choice]) -> Block:
    """The trip without these choices, and without loops that then leave elements as they are."""
    sides = {choice.node: choice.side for choice in choices}

    def taken(node: Expr) -> Expr | None:
        side = sides.get(node)
        return None if side is None else transform(side, taken)

    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Parallel):
            parts = [
                replace(part, value=transform(part.value, taken)) if isinstance(part, Store) else part
                for part in stmt.body
            ]
            stmt = replace(stmt, body=tuple(part for part in parts if not _is_idle(part)))
        if not (isinstance(stmt, Parallel) and all(isinstance(part, Bind) for part in stmt.body)):
            made.append(stmt)
    return tuple(made)


def _is_idle(stmt: Stmt) -> bool:
    """Whether a statement stores an element to itself."""
    if not isinstance(stmt, Store) or not isinstance(stmt.value, TensorLoad):
        return False
    return stmt.value.source.same_as(stmt.buffer) and same_all(tuple(stmt.value.indices), stmt.indices)
