"""The last product of a trip is issued in the next one, behind that trip's first product.

A loop whose last statement is a product P leaves the tensor cores idle while the statements before P
compute what it multiplies. P of trip k needs nothing of trip k + 1, so that trip k + 1 may issue its first
product F and then P of trip k: the statements between run beside P, up to the first that touches what P
reads or writes; those go last. Names of what is read of tensors for them are bound behind the products: it
arrives while the first one is under way.

    F(0) rest(0)  |  F(k) P(k - 1) rest(k), for k from 1 on  |  P(last)

P keeps its place among all statements that touch its operands, so that results are the same. Where registers
do not hold P's operand beside F's result, F follows P once that is complete, and the products of the other
warpgroups run beside the statements between:

    F(0) rest(0)  |  P(k - 1) F(k) rest(k), for k from 1 on  |  P(last)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.attention.assign.parts import needed
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, TripLoop, Turn, ZeroRows
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, copied, touched
from tilec.ir.exprs import dtype_of, loads, uses
from tilec.ir.nodes import Bind, Block, Copy, If, Launch, Pipelined, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class OverlapProducts(AttentionPass):
    """In: AttentionRoles with one Pipelined in each role. Out: serial loops, rotated where the last statement
    of a trip is a product that may wait; the producer's loads keep the order of their uses. With two
    warpgroups or more the products of a rotated trip are issued in turns."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their loops rotated."""
        loop = next(stmt for stmt in roles.consumer if isinstance(stmt, Pipelined))
        roles = replace(roles, turner=tuple(_serial(stmt) for stmt in roles.turner))
        split = _Split.of(loop.body)
        if split is None or (roles.alone and split.begin):
            return replace(
                roles,
                producer=tuple(_serial(stmt) for stmt in roles.producer),
                consumer=tuple(_serial(stmt) for stmt in roles.consumer),
            )
        turns = roles.roles.consumers > 1 and launch.schedule.pingpong is not False
        late = {region.buffer for region in (split.last.a, split.last.b)}
        return replace(
            roles,
            producer=tuple(
                _producer(stmt, late) if isinstance(stmt, Pipelined) else stmt for stmt in roles.producer
            ),
            consumer=tuple(
                _consumer(stmt, split, turns, roles.alone) if isinstance(stmt, Pipelined) else stmt
                for stmt in roles.consumer
            ),
            turns=turns,
        )


def _serial(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Pipelined):
        return stmt
    return TripLoop("serial", stmt.var, stmt.start, stmt.stop, tirx.const(1, dtype_of(stmt.var)), stmt.body)


@dataclass(frozen=True, eq=False)
class _Split:
    """A trip's statements: names; what ``begin``s the ``first`` product, such as the values that its sums
    start from, and that product; ``free`` ones that may run beside the last one of the trip before, the
    others in order; then what prepares the last product's operands in shared memory, and that product."""

    names: tuple[Bind, ...]
    begin: Block
    first: AsyncProduct
    free: Block
    bound: Block
    prepare: Block
    last: AsyncProduct

    @classmethod
    def of(cls, body: Block) -> _Split | None:
        """The parts; None where the last statement is no product, or may not wait for the next trip."""
        *before, last = body
        at = next((i for i, stmt in enumerate(before) if isinstance(stmt, AsyncProduct)), None)
        if not isinstance(last, AsyncProduct) or at is None:
            return None
        names = tuple(stmt for stmt in before if isinstance(stmt, Bind))
        prepare = tuple(stmt for stmt in before if isinstance(stmt, ZeroRows) and _prepares(stmt, last))
        rest = [stmt for stmt in before[at + 1 :] if stmt not in prepare and stmt not in names]
        *begin, first = (stmt for stmt in before[: at + 1] if stmt not in names)
        if any(_conflict(stmt, last) for stmt in (*begin, first)) or _shares_tiles(last, before, prepare):
            return None
        free: list[Stmt] = []
        bound: list[Stmt] = []
        for stmt in rest:
            waits = _conflict(stmt, last) or any(_conflict(stmt, other) for other in bound)
            (bound if waits else free).append(stmt)
        return cls(names, tuple(begin), first, tuple(free), tuple(bound), prepare, last)  # type: ignore[arg-type]


def _shares_tiles(last: AsyncProduct, others: list[Stmt], prepare: tuple[Stmt, ...]) -> bool:
    """Whether another statement reads a shared tile of the last product: one trip has one version at hand."""
    tiles = {region.buffer for region in (last.a, last.b) if region.buffer.scope() == "shared.dyn"}
    return any(tiles & touched(stmt)[0] for stmt in others if stmt not in prepare)


def _prepares(stmt: ZeroRows, last: AsyncProduct) -> bool:
    return any(stmt.tile.buffer.same_as(region.buffer) for region in (last.a, last.b))


def _conflict(one: Stmt, other: Stmt) -> bool:
    (all_one, written_one), (all_other, written_other) = touched(one), touched(other)
    return bool(written_one & all_other or written_other & all_one)


# ---- the rotated loops ----


def _consumer(loop: Pipelined, split: _Split, turns: bool, alone: bool) -> If:
    one = tirx.const(1, dtype_of(loop.var))
    before = {loop.var: loop.var - one}
    first = (*split.begin, split.first)
    late = _read_late(split.names, first)
    early = tuple(stmt for stmt in split.names if stmt not in late)
    rest = (*late, *split.free, *split.bound)
    delayed = copied(needed((*split.names, *split.prepare)), before)
    begin, end = ((Turn(True),), (Turn(False),)) if turns else ((), ())
    products = (split.last, split.first) if alone else (split.first, split.last)
    body = (*early, *delayed, *split.begin, *begin, *products, *end, *rest)
    trip = TripLoop("serial", loop.var, loop.start + one, loop.stop, one, body, loc=loop.loc)
    start = copied((*early, *first, *rest), {loop.var: loop.start})
    stop = copied((*needed((*split.names, *split.prepare)), split.last), {loop.var: loop.stop - one})
    return If(loop.start < loop.stop, (*start, trip, *stop), loc=loop.loc)


def _read_late(names: tuple[Bind, ...], first: Block) -> tuple[Bind, ...]:
    """Names that the first product and what begins it do not use and that are read of tensors, or follow from
    such ones."""
    used = needed((*names, *first))
    late: list[Bind] = []
    for stmt in names:
        reads = next(loads(stmt.value), None) is not None or uses(stmt.value, {each.var for each in late})
        if reads and stmt not in used:
            late.append(stmt)
    return tuple(late)


def _producer(loop: Pipelined, late: set[Var]) -> If:
    """Loads in the order of the products: those that the last product alone reads come a trip later."""
    one = tirx.const(1, dtype_of(loop.var))
    names = tuple(stmt for stmt in loop.body if isinstance(stmt, Bind))
    loads = [stmt for stmt in loop.body if isinstance(stmt, Copy)]
    held = tuple(stmt for stmt in loads if any(stmt.dst.buffer.same_as(b) for b in late))
    at_once = tuple(stmt for stmt in loads if stmt not in held)

    def at(block: Block, value: Expr) -> Block:
        return copied(needed((*names, *block)), {loop.var: value})

    body = (*at(at_once, loop.var), *at(held, loop.var - one))
    trip = TripLoop("serial", loop.var, loop.start + one, loop.stop, one, body, loc=loop.loc)
    return If(
        loop.start < loop.stop,
        (*at(at_once, loop.start), trip, *at(held, loop.stop - one)),
        loc=loop.loc,
    )
