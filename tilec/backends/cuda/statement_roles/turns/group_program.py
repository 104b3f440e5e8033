"""The statements of one of two warpgroups that take the first products of trips in turns.

`take_turns` shows the programs of both side by side. Here an even and an odd trip of each are written out:
who multiplies, who hears of the rows that the other one has made, by which named barrier and through which
tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents, whole_tile
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.statement_roles.turns.column_parts import ColumnParts, with_staged
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, Copy, For, Gemm, If, Stmt, Store, children, walk, with_children
from tilec.ir.nodes.barriers import AllocBarrier, Arrive, Group, WaitPhase, WaitProducts
from tilec.ir.traits import defined, written
from tilec.lowering.analysis.uses import touches, used_in, written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.statement_roles.turns.trip_parts import Step, TripParts

GROUPS = 2
_SHARED = "shared.dyn"


@dataclass(frozen=True)
class Turns:
    """The turns of a ``group`` of two warpgroups at the trips of its ``loop``. ``told``: for each of them the
    shared tile in which each fragment passes that it tells; ``signals``: the barriers by which each of them
    tells what a step has made, and in the end that at which both meet (each in its own code: synccheck takes
    two places of one named barrier for threads that part)."""

    group: Group
    loop: For
    trip: TripParts
    told: tuple[Mapping[Var, Var], ...]
    signals: Var

    def signal(self, number: int, step: Step) -> Expr:
        """The barrier by which a group tells."""
        return tirx.const(GROUPS * self.trip.steps.index(step) + number, "int32")

    @cached_property
    def heard(self) -> Var:
        """The variable of a thread for the parity of the trip that it hears of next."""
        return tirx.decl_buffer((1,), "int32", f"{self.signals.name}_heard", scope="local.var")

    @cached_property
    def met(self) -> Var:
        """The variable of a thread for the parity of the meeting that comes next."""
        return tirx.decl_buffer((1,), "int32", f"{self.signals.name}_met", scope="local.var")

    def shared(self) -> Iterator[Stmt]:
        """The allocations of the tiles that both groups use."""
        inside = [stmt for stmt in walk(self.group.body) if _is_shared(stmt)]
        yield from inside
        known = {var for stmt in inside for var in defined(stmt)}
        tiles = dict.fromkeys(tile for told in self.told for tile in told.values())
        yield from (Alloc(tile) for tile in tiles if tile not in known)
        told_by = (WARPGROUP,) * (GROUPS * len(self.trip.steps))
        yield AllocBarrier(self.signals, (*told_by, self.group.count))

    def of_group(self, number: int) -> Group:
        """One of the groups."""
        narrow = {tile: _narrow(tile) for tile in self.trip.sums}
        columns = ColumnParts(narrow, number, GROUPS)
        begun = (Alloc(parity, init=tirx.const(0, "int32")) for parity in (self.heard, self.met))
        body = (*begun, *self._block(self.group.body, columns))
        return Group(number * WARPGROUP, WARPGROUP, copied(body))

    @cached_property
    def _staged(self) -> frozenset[Var]:
        """The results, and the shared tiles that they go through behind the loop."""
        return with_staged(self.group.body, self.trip.sums)

    @cached_property
    def _first_staged(self) -> Stmt | None:
        """The statement in front of which the groups meet, as it stages results."""
        tiles = {tile for tile in self._staged if tile.scope() == _SHARED}
        plain = (stmt for stmt in walk(self.group.body) if not children(stmt))
        return next((stmt for stmt in plain if tiles & set(written(stmt))), None)

    def _block(self, block: Block, columns: ColumnParts) -> Block:
        """A block of the consumers as the group of some columns runs it."""
        return tuple(made for stmt in block for made in self._stmt(stmt, columns))

    def _stmt(self, stmt: Stmt, columns: ColumnParts) -> Iterator[Stmt]:
        if _is_shared(stmt):
            return
        if stmt is self._first_staged:
            yield from self._meeting()
        if stmt is self.loop:
            yield from self._loop(columns)
        elif self.loop in walk((stmt,)):
            yield with_children(stmt, [self._block(inner, columns) for inner in children(stmt)])
        elif isinstance(stmt, Alloc) or self._staged & used_in((stmt,)):
            yield columns.stmt(stmt)
        elif columns.number == 0 or _is_own(stmt):
            scopes = {tile.scope() for tile in written_in((stmt,))}
            need(_SHARED not in scopes, "it makes a tile for all", stmt)
            yield stmt

    def _meeting(self) -> Block:
        number = tirx.const(GROUPS * len(self.trip.steps), "int32")
        parity = tirx.BufferLoad(self.met, [tirx.const(0, "int32")])
        return (Arrive(self.signals, number), WaitPhase(self.signals, number, parity), _turned(self.met))

    def _loop(self, columns: ColumnParts) -> Iterator[Stmt]:
        """The loop, two trips at a time. Where it is run again, the groups meet behind it, as one of them has
        told what the other one may not have read when the trips are odd."""
        loop, dtype = self.loop, dtype_of(self.loop.var)
        pair = tirx.Var("pair", dtype)
        one, two = tirx.const(1, dtype), tirx.const(2, dtype)
        even = loop.start + pair * two
        body = (_even if columns.number == 0 else _odd)(
            _Trip(self, columns, even), _Trip(self, columns, even + one), even + one < loop.stop
        )
        pairs = (loop.stop - loop.start + one) // two
        yield from self.trip.allocs
        yield from (Alloc(tile) for tile in self.trip.weights)
        yield with_fields(loop, var=pair, start=tirx.const(0, dtype), stop=pairs, body=body)
        if loop not in self.group.body:
            yield from self._meeting()


def _even(trip: _Trip, following: _Trip, follows: Expr) -> Block:
    """Two trips of the group that has the first products of the former."""
    return (
        *trip.first(),
        *trip.middle(),
        *trip.rest(),
        If(follows, (*following.places(), *following.heard(), *following.heard_last())),
    )


def _odd(trip: _Trip, following: _Trip, follows: Expr) -> Block:
    """Two trips of the group that has the first products of the latter: they are issued before the group
    waits for what it multiplies in the former."""
    middle = following.middle(trip.heard_last())
    own = (*following.first(), *trip.heard(), *middle, *following.rest())
    return (*trip.places(), If(follows, own, copied((*trip.heard(), *trip.heard_last()))))


class _Trip:
    """Trip ``number`` of a loop for the group of some columns."""

    def __init__(self, turns: Turns, columns: ColumnParts, number: Expr) -> None:
        self._turns, self._trip, self._columns = turns, turns.trip, columns
        inside = (var for stmt in walk(turns.trip.loop.body) for var in defined(stmt))
        names = {var: tirx.Var(str(var.name), dtype_of(var)) for var in inside if not tirx.is_buffer_var(var)}
        self._names = {**names, turns.loop.var: number}

    def first(self) -> Block:
        """Up to its first products."""
        return renamed(self._trip.first, self._names)

    def middle(self, heard: Block = ()) -> Block:
        """What makes weights and rows, and tells them; ``heard`` stands in front of what is told last. What
        is told first says nothing of products under way: weights are written when these are complete."""
        *before, last = self._trip.steps
        late = sum(isinstance(stmt, Gemm) for stmt in self._trip.rest)
        made = (stmt for step in before for stmt in (*self._made(step), *self._tell(step, late)))
        return (*made, *heard, *self._made(last), *self._tell(last, late))

    def _made(self, step: Step) -> Block:
        return renamed(step.body, self._names)

    def _tell(self, step: Step, late: int) -> Iterator[Stmt]:
        told, number = self._turns.told[self._columns.number], self._columns.number
        if step.told:
            yield from (Copy(whole_tile(tile), whole_tile(told[tile])) for tile in step.told)
            yield WaitProducts(late)
            yield Arrive(self._turns.signals, self._turns.signal(number, step))

    def rest(self) -> Block:
        """The rest, for the columns of the group."""
        users = {stmt for stmt in self._trip.rest if any(touches(stmt, tile) for tile in self._trip.sums)}
        own = (self._columns.stmt(stmt) if stmt in users else stmt for stmt in self._trip.rest)
        return renamed(tuple(own), self._names)

    def places(self) -> Block:
        """What finds the stages of a trip whose first products are the other group's."""
        return renamed(self._trip.places, self._names)

    def heard(self) -> Block:
        """The rest of such a trip: rows are heard first, weights in front of the first product."""
        before, those, _ = self._steps
        told = self._turns.told[1 - self._columns.number]
        rest = with_buffers(self.rest(), {tile: told[tile] for tile in self._trip.weights})
        cut = next(place for place, stmt in enumerate(rest) if isinstance(stmt, Gemm))
        return (*self._hear(before), *rest[:cut], *self._hear(those), *rest[cut:])

    def heard_last(self) -> Block:
        """What is told of such a trip behind the weights."""
        return (*self._hear(self._steps[-1]), _turned(self._turns.heard))

    @property
    def _steps(self) -> tuple[Sequence[Step], ...]:
        """The steps that tell something: in front of the weights, with these, and behind them."""
        steps = [step for step in self._trip.steps if step.told]
        place = next(place for place, step in enumerate(steps) if self._trip.weights & set(step.told))
        return steps[:place], steps[place : place + 1], steps[place + 1 :]

    def _hear(self, steps: Iterable[Step]) -> Iterator[Stmt]:
        number = 1 - self._columns.number
        told = self._turns.told[number]
        parity = tirx.BufferLoad(self._turns.heard, [tirx.const(0, "int32")])
        for step in steps:
            yield WaitPhase(self._turns.signals, self._turns.signal(number, step), parity)
            rows = (tile for tile in step.told if tile not in self._trip.weights)
            yield from (Copy(whole_tile(told[tile]), whole_tile(tile)) for tile in rows)


def fragment(tile: Var, scope: str = "local.fragment") -> Var:
    """A fragment, or a tile of another scope, for what a tile holds."""
    name = f"{tile.name}_told" if scope == _SHARED else str(tile.name)
    return tirx.decl_buffer(static_extents(tile), str(tile.dtype), name, scope=scope)


def _turned(parity: Var) -> Store:
    """The parity of the phase that comes next."""
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    return Store(parity, (zero,), tirx.bitwise_xor(tirx.BufferLoad(parity, [zero]), one))


def _narrow(tile: Var) -> Var:
    """A fragment of a group's columns."""
    *rows, columns = static_extents(tile)
    shape = (*rows, columns // GROUPS)
    return tirx.decl_buffer(shape, str(tile.dtype), str(tile.name), scope="local.fragment")


def _is_shared(stmt: Stmt) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer.scope() == _SHARED


def _is_own(stmt: Stmt) -> bool:
    """Whether a statement does nothing but to what each thread has for itself, and to barriers."""
    return all(str(tile.scope()).startswith("local") for tile in written_in((stmt,)))
