"""Trips that branch on their number's remainder run so many at a time, each of which knows its branch.

    for k: C += A[k] B[k]; if (k + 1) % 2 == 0: D += s * C; C = 0
    ->
    for p: C += A[2 p] B[2 p]; C += A[2 p + 1] B[2 p + 1]; D += s * C; C = 0

Products run on past the trips that read no sums of theirs: behind a branch that may read them, a warpgroup
waits for them in every trip. H200, float8, 4096 x 4096 x 4096 in trips of 64, scales of 128 along K: 235 us,
195 so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.analysis.trips.periods import sides
from tilec.backends.cuda.nodes import BoxLoad
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Block, For, Gemm, If, Launch, Stmt, walk
from tilec.ir.nodes.barriers import Group
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.trip_pairs import in_groups, runs_in_groups

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Trips of a loop that one trip may become, and products that it then has.
_PERIODS, _MOST_PRODUCTS = (2, 4, 8), 16


class SettleBranches(LaunchPass):
    """In: loops with products in groups of launches with rings, whose trips branch on conditions of nothing
    but the remainder of their number. Out: loops of 2, 4 or 8 times fewer trips without these branches, and
    one of what is left behind the last whole trip."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its trips; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        return replace(launch, body=tuple(_group(stmt) for stmt in launch.body))


def _group(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Group):
        return stmt
    return replace(
        stmt, body=rewrite_blocks(stmt.body, lambda block: list(chain.from_iterable(map(_settled, block))))
    )


def _settled(stmt: Stmt) -> Block:
    """A loop whose branches are settled; anything else as it is."""
    if not isinstance(stmt, For) or stmt.kind != "serial" or not runs_in_groups(stmt):
        return (stmt,)
    products = sum(isinstance(inner, Gemm) for inner in walk(stmt.body))
    if not any(isinstance(inner, Gemm) for inner in stmt.body) or int_value(stmt.start) is None:
        return (stmt,)
    fitting = (period for period in _PERIODS if period * products <= _MOST_PRODUCTS)
    return next((made for period in fitting if (made := _in_periods(stmt, period))), (stmt,))


def _in_periods(loop: For, period: int) -> Block:
    """The loop over ``period`` trips at a time, and that over the trips left; nothing where this settles no
    branch."""
    branches: dict[Stmt, tuple[bool | None, ...]]
    branches = {stmt: sides(stmt.cond, loop, period) for stmt in loop.body if isinstance(stmt, If)}
    if not any(set(taken) == {True, False} for taken in branches.values()):
        return ()
    groups, _ = in_groups(loop, [_taken(loop.body, branches, number) for number in range(period)])
    return (groups, *_rest(loop, sym.Analyzer().simplify(loop.start + groups.stop * period)))


def _taken(body: Block, branches: dict[Stmt, tuple[bool | None, ...]], number: int) -> Block:
    """A trip with the sides of its branches that the trip of this ``number`` takes."""
    made: list[Stmt] = []
    for stmt in body:
        side = branches[stmt][number] if stmt in branches else None
        if side is None or not isinstance(stmt, If):
            made.append(stmt)
        else:
            made += stmt.then if side else stmt.orelse
    return tuple(made)


def _rest(loop: For, first: Expr) -> Block:
    """The trips from ``first`` on, as they are."""
    if sym.Analyzer().can_prove(first >= loop.stop):
        return ()
    var = tirx.Var(str(loop.var.name), dtype_of(loop.var))
    return (replace(loop, var=var, start=first, body=renamed(copied(loop.body), {loop.var: var})),)
