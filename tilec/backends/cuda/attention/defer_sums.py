"""Row sums that are only added up stay apart, a share in each lane, until the loop is over.

    for k: part = sum of the row of S; total = total * f + part       (total starts at 0)

is linear in `part`: every lane may do it with its own share of the sums if the shares of `total` are added up
behind the loop. That takes the exchange between lanes out of every trip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.tiles import whole_tile
from tilec.backends.cuda.attention.nodes import AttentionRoles, JoinLanes, LaneSums
from tilec.backends.cuda.attention.rewriting import AttentionPass, touched
from tilec.backends.cuda.nodes import BlockReduce, ThreadLoop
from tilec.ir.exprs import int_value, loads
from tilec.ir.nodes import Block, Pipelined, Stmt, Store

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Launch


class DeferSums(AttentionPass):
    """In: AttentionRoles with BlockReduce in the loop of its consumers. Out: LaneSums there and JoinLanes
    behind the loop, for sums that go nowhere but into a total."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their sums deferred."""
        at = next(i for i, stmt in enumerate(roles.consumer) if isinstance(stmt, Pipelined))
        loop, before, after = roles.consumer[at], roles.consumer[:at], roles.consumer[at + 1 :]
        assert isinstance(loop, Pipelined)
        joins: list[JoinLanes] = []
        body = list(loop.body)
        for place, stmt in enumerate(body):
            total = _total_of(stmt, loop.body) if isinstance(stmt, BlockReduce) else None
            if total is None or not _starts_at_zero(total, before) or _is_read(stmt.dst.buffer, after):  # type: ignore[attr-defined]
                continue
            assert isinstance(stmt, BlockReduce)
            body[place] = LaneSums(
                stmt.kind, stmt.src, stmt.dst, stmt.axis, stmt.clear, stmt.nan_propagate, loc=stmt.loc
            )
            joins.append(JoinLanes(whole_tile(total), stmt.src, stmt.axis, loc=stmt.loc))
        return replace(roles, consumer=(*before, replace(loop, body=tuple(body)), *joins, *after))


def _total_of(reduce: BlockReduce, body: Block) -> Var | None:
    """What a sum is added to, where the trip does nothing else with either."""
    if reduce.kind != "sum" or not reduce.clear or reduce.scratch is not None:
        return None
    part = reduce.dst.buffer
    users = [stmt for stmt in body if stmt is not reduce and part in touched(stmt)[0]]
    store = _only_store(users[0]) if len(users) == 1 else None
    if store is None or not _adds(store, part):
        return None
    others = [stmt for stmt in body if stmt is not users[0] and store.buffer in touched(stmt)[0]]
    return None if others else store.buffer


def _only_store(stmt: Stmt) -> Store | None:
    """The store of a loop over rows that has no other statement."""
    if not isinstance(stmt, ThreadLoop) or len(stmt.vars) != 1 or len(stmt.body) != 1:
        return None
    (store,) = stmt.body
    own = isinstance(store, Store) and len(store.indices) == 1 and store.indices[0].same_as(stmt.vars[0])
    return store if own else None  # type: ignore[return-value]


def _adds(store: Store, part: Var) -> bool:
    """Whether the value is ``total * factor + part`` or ``total + part``, all of the same row."""
    value = store.value
    if not isinstance(value, tirx.Add) or not _is_element(value.b, part, store):
        return False
    total = value.a
    if isinstance(total, tirx.Mul):
        total, factor = total.a, total.b
        if any(load.source in (part, store.buffer) for load in loads(factor)):
            return False
    return _is_element(total, store.buffer, store)


def _is_element(value: Expr, buffer: Var, store: Store) -> bool:
    own = isinstance(value, TensorLoad) and value.source.same_as(buffer)
    return own and len(value.indices) == 1 and value.indices[0].same_as(store.indices[0])


def _starts_at_zero(total: Var, before: Block) -> bool:
    writers = [stmt for stmt in before if total in touched(stmt)[1]]
    store = _only_store(writers[-1]) if writers else None
    return store is not None and int_value(store.value) is None and getattr(store.value, "value", 1) == 0


def _is_read(part: Var, after: Block) -> bool:
    """Whether a statement reads a fragment before one writes all of it."""
    for stmt in after:
        store = _only_store(stmt)
        if store is not None and store.buffer.same_as(part):
            return any(load.source.same_as(part) for load in loads(store.value))
        if part in touched(stmt)[0]:
            return True
    return False
