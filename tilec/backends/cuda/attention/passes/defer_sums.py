"""Row sums that are only added up stay apart, a share in each lane, until the loop is over.

    for k: part = sum of the row of S; total = total * f + part       (total starts at 0)

is linear in `part`: every lane may do it with its own share of the sums if the shares of `total` are added up
behind the loop. That takes the exchange between lanes out of every trip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import layouts_in, whole_tile
from tilec.backends.cuda.analysis.trips.totals import factor_of, store_of_each
from tilec.backends.cuda.attention.nodes import AttentionRoles
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, touched
from tilec.backends.cuda.nodes import BlockReduce, JoinReduce
from tilec.backends.cuda.passes.sums.defer_reductions import joined, own_part
from tilec.ir.exprs import int_value, is_zero, loads
from tilec.ir.nodes import Block, Pipelined

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Launch


class DeferSums(AttentionPass):
    """In: AttentionRoles with BlockReduce in the loop of its consumers. Out: OwnReduce there and JoinReduce
    behind the loop, for sums that go nowhere but into a total."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their sums deferred."""
        at = next(i for i, stmt in enumerate(roles.consumer) if isinstance(stmt, Pipelined))
        loop, before, after = roles.consumer[at], roles.consumer[:at], roles.consumer[at + 1 :]
        assert isinstance(loop, Pipelined)
        joins: list[JoinReduce] = []
        body, layouts = list(loop.body), layouts_in(launch.body)
        for place, stmt in enumerate(body):
            total = _total_of(stmt, loop.body) if isinstance(stmt, BlockReduce) else None
            if total is None or not _starts_at_zero(total, before) or _is_read(stmt.dst.buffer, after):  # type: ignore[attr-defined]
                continue
            assert isinstance(stmt, BlockReduce)
            body[place] = own_part(stmt, stmt.dst, stmt.clear)
            sums = whole_tile(total)
            joins.append(joined(stmt, sums, sums, True, layouts[stmt.src.buffer]))
        return replace(roles, consumer=(*before, replace(loop, body=tuple(body)), *joins, *after))


def _total_of(reduce: BlockReduce, body: Block) -> Var | None:
    """What a sum is added to, where the trip does nothing else with either."""
    if reduce.kind != "sum" or not reduce.clear or reduce.scratch is not None:
        return None
    part = reduce.dst.buffer
    users = [stmt for stmt in body if stmt is not reduce and part in touched(stmt)[0]]
    store = store_of_each(users[0]) if len(users) == 1 else None
    if store is None or factor_of(store, part) is None:
        return None
    others = [stmt for stmt in body if stmt is not users[0] and store.buffer in touched(stmt)[0]]
    return None if others else store.buffer


def _starts_at_zero(total: Var, before: Block) -> bool:
    writers = [stmt for stmt in before if total in touched(stmt)[1]]
    store = store_of_each(writers[-1]) if writers else None
    return store is not None and int_value(store.value) is None and is_zero(store.value)


def _is_read(part: Var, after: Block) -> bool:
    """Whether a statement reads a fragment before one writes all of it."""
    for stmt in after:
        store = store_of_each(stmt)
        if store is not None and store.buffer.same_as(part):
            return any(load.source.same_as(part) for load in loads(store.value))
        if part in touched(stmt)[0]:
            return True
    return False
