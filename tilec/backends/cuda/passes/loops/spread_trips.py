"""A loop over elements inside of a T.Parallel's iteration is an axis of the T.Parallel.

for i, j in parallel(32, 16): for t in range(8): f[i, j * 8 + t] = g(i, j, t)
->
for i, j, t in parallel(32, 16, 8): f[i, j * 8 + t] = g(i, j, t)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.passes.sums.serialise_collisions import colliding
from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.exprs import inlined, int_value, linear_in, loads, same_all, uses
from tilec.ir.nodes import Bind, Block, For, If, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.analysis.uses import overlapping
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from tvm.ir import Expr, Var


class SpreadTrips(LaunchPass):
    """In: Parallel loops. Out: where all that an iteration does behind names and tests is a loop of constant
    extent, whose trips store elements of their own, the Parallel runs over these, too."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops spread."""
        found = overlapping(launch)

        def spread(block: Block) -> list[Stmt]:
            return [_spread(stmt, found) if isinstance(stmt, Parallel) else stmt for stmt in block]

        return replace(launch, body=rewrite_blocks(launch.body, spread))


def _spread(outer: Parallel, overlapping: Set[Var]) -> Parallel:
    names, inner = _way(outer.body)
    if not isinstance(inner, For) or outer.hints.given:
        return outer
    trips = int_value(inner.stop)
    if not counts_from_zero(inner) or not trips:
        return outer
    stores = [stmt for stmt in walk(inner.body) if isinstance(stmt, Store)]
    values = values_of(walk(outer.body))
    if not _are_plain(inner.body, stores, overlapping) or not all(
        _moves(stmt, inner.var, values) and _is_alone(stmt, outer) for stmt in stores
    ):
        return outer
    ahead = not any(uses(inlined(stmt.indices[-1], values), (inner.var,)) for stmt in stores)
    if ahead and any(next(loads(stmt.value), None) is not None for stmt in names):
        return outer  # trips on other threads would read again what an iteration reads once
    variables = (inner.var, *outer.vars) if ahead else (*outer.vars, inner.var)
    extents = (trips, *outer.extents) if ahead else (*outer.extents, trips)
    made = replace(outer, vars=variables, extents=extents, body=_without(outer.body))
    return outer if _may_meet(made, stores) else made


def _may_meet(loop: Parallel, stores: list[Store]) -> bool:
    """Whether iterations would have to run one after the other."""
    if all(int_value(extent) is not None for extent in loop.extents):
        return bool(colliding(loop))
    read = {item.buffer for item in accesses(loop.body) if not item.is_write}
    return any(stmt.buffer in read or stmt.buffer.scope() == "local.fragment" for stmt in stores)


def _way(body: Block) -> tuple[list[Bind], Stmt | None]:
    """The names in front of the last statement of a body, or of that of the tests around it, and this
    statement; None where others stand there."""
    names = [stmt for stmt in body[:-1] if isinstance(stmt, Bind)]
    if len(names) != len(body) - 1:
        return [], None
    last = body[-1]
    if not isinstance(last, If) or last.orelse:
        return names, last
    inner, found = _way(last.then)
    return [*names, *inner], found


def _without(body: Block) -> Block:
    """A body with what its loop does in place of the loop."""
    *names, last = body
    if isinstance(last, For):
        return (*names, *last.body)
    assert isinstance(last, If)
    return (*names, replace(last, then=_without(last.then)))


def _are_plain(body: Block, stores: list[Store], overlapping: Set[Var]) -> bool:
    """Whether a body does nothing but store to memory of which each tensor has its own."""
    plain = all(isinstance(stmt, (Bind, If, Store)) for stmt in walk(body))
    own = (stmt.buffer.scope() not in PER_THREAD and stmt.buffer not in overlapping for stmt in stores)
    return plain and bool(stores) and all(own)


def _moves(store: Store, var: Var, values: Mapping[Var, Expr]) -> bool:
    steps = (linear_in(inlined(index, values), [var]) for index in store.indices)
    return any(step and int_value(step[0]) not in (None, 0) for step in steps)


def _is_alone(store: Store, outer: Parallel) -> bool:
    """Whether an iteration names no other element of a store's buffer."""
    named = (item for item in accesses(outer.body) if item.buffer.same_as(store.buffer))
    return all(same_all(item.indices, store.indices) for item in named)
