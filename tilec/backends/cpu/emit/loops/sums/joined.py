"""Iterations whose sums read the same elements run several at a time, their loops as one.

for x, o in parallel(28, 32): s = 0; for k in serial(0, n): s = s + X[x, k] * W[k, o]
->
for x, o in parallel(4, 32): s = t = .. = 0; for k in serial(0, n): s = s + X[x * 7, k] * W[k, o]; t = ..

What they share is then read once for all of them, and no sum waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call

from tilec.backends.cpu.emit.loops.lane_axis import lane_count, lies_apart
from tilec.backends.cpu.emit.loops.sums.chains import chains_at_a_time
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import all_of, conjuncts, dtype_of, inlined, int_value, loads, reads, same, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Parallel, Stmt, Store, children, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.accumulations import dependents, find_accumulations
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext

#: Calls that are no more than an operation.
_BITS = ("reinterpret", "if_then_else", "likely", "fabs", "sqrt")
#: Iterations at a time: beyond these what is shared costs little.
_MOST = 8
#: Terms of a sum below which vectors of lanes, which share numbers alone, hardly wait; those of an unknown
#: number of trips.
_FEW, _MANY = 8, 64
#: Iterations at a time along each of two axes, where the trips of sums have the lanes.
_ROWS = (4, 2)


def joined_iterations(loop: Parallel, lane: int, ctx: LaneContext) -> list[Parallel]:
    """Loops that do together what ``loop`` does, whose lanes run along an axis: one where that is as good."""
    sums, most = sums_of(loop.body), _most_at_a_time(loop, ctx.target.vector_registers)
    axes = [axis for axis in range(len(loop.vars)) if axis != lane and most > 1 and _may_join(loop, axis)]
    shared = {axis: _shared(loop, axis, sums) for axis in axes}
    best = max(axes, key=lambda axis: shared[axis], default=None)
    return [loop] if best is None or not shared[best] else _parts(loop, best, lane, min(most, _MOST))


def joined_vectors(loop: Parallel, lane: int, ctx: LaneContext) -> tuple[Parallel, list[Expr]] | None:
    """A loop of which an iteration does what those of several vectors of lanes do, which are the last axis,
    and the conditions that tell lanes apart; None where there are no whole ones."""
    width, extent = lane_count(loop.body, ctx), int_value(loop.extents[lane])
    vectors = 1 if extent is None or extent % width else extent // width
    most = _vectors_at_a_time(loop, lane, ctx)
    count = max(count for count in range(1, most + 1) if vectors % count == 0)
    if count < 2:
        return None
    old, moving = loop.vars[lane], dependents(loop.body, loop.vars[lane])
    names = values_of(walk(loop.body))
    var, within = (tirx.Var(str(old.name), dtype_of(old)) for _ in range(2))
    places = [var * (count * width) + (number * width + within) for number in range(count)]
    conds = [cond for stmt in walk(loop.body) if isinstance(stmt, If) for cond in conjuncts(stmt.cond)]
    wide = replace(
        loop,
        vars=(*loop.vars[:lane], var, *loop.vars[lane + 1 :], within),
        extents=(*loop.extents[:lane], vectors // count, *loop.extents[lane + 1 :], width),
        body=_Joined(old).bodies([copied(renamed(loop.body, {old: place})) for place in places]),
    )
    return wide, [inlined(cond, names) for cond in conds if uses(cond, moving)]


def _vectors_at_a_time(loop: Parallel, lane: int, ctx: LaneContext) -> int:
    """How many vectors of lanes may run at a time, and gain by it."""
    registers = ctx.target.vector_registers
    if adds_up(loop, lane, ctx):
        return _most_at_a_time(loop, registers)
    plain = is_scalar_code(loop.body) and not _calls(loop.body) and _may_join(loop, lane)
    count = chains_at_a_time(loop, registers) if plain else 1
    return 1 if count > 1 and lies_apart(loop.body, loop.vars[lane], ctx) else count


def adds_up(loop: Parallel, lane: int, ctx: LaneContext) -> bool:
    """Whether iterations that differ along an axis have sums of some terms, and read elements that are the
    same for all of them."""
    most = _most_at_a_time(loop, ctx.target.vector_registers)
    some = most > 1 and _terms(loop.body) >= _FEW and _may_join(loop, lane)
    return some and _shared(loop, lane, sums_of(loop.body)) > 0


def joined_rows(loop: Parallel, registers: int) -> list[Parallel]:
    """Loops that do together what ``loop`` does, where trips of sums have the lanes: up to four iterations
    along one axis at a time and two along another one, where these share what they read; ``loop`` where none
    do."""
    parts, left = [loop], {axis for axis in range(len(loop.vars)) if not _is_tested(loop, axis)}
    if _terms(loop.body) < _FEW:
        return parts
    for most in _ROWS:
        shared = {axis: _shared(parts[0], axis, sums_of(parts[0].body)) for axis in left}
        axis = max(shared, key=lambda axis: (shared[axis], axis), default=None)
        if axis is None or not shared[axis]:
            break
        left.remove(axis)
        parts = [made for part in parts for made in _rows(part, axis, most, registers)]
    return parts


def joined_trips(bodies: Sequence[Block], lane: Var) -> Block:
    """Bodies of several trips of a loop, the same but for the names in them, as one; ``lane`` tells lanes
    apart."""
    return _Joined(lane).bodies(bodies)


def _is_tested(loop: Parallel, axis: int) -> bool:
    """Whether branches with loops, which would be written out for each iteration, depend on an axis."""
    moving = dependents(loop.body, loop.vars[axis])
    branches = [stmt for stmt in walk(loop.body) if isinstance(stmt, If)]
    return any(
        uses(branch.cond, moving) and any(isinstance(stmt, For) for stmt in walk((branch,)))
        for branch in branches
    )


def _rows(loop: Parallel, axis: int, most: int, registers: int) -> list[Parallel]:
    """A few iterations along an axis at a time, if they may."""
    known = all(known_trips(each) is not None for each, _ in sums_of(loop.body))
    most = min(_most_at_a_time(loop, registers), most if known else 2)
    return _parts(loop, axis, axis, most) if most > 1 and _may_join(loop, axis) else [loop]


def _most_at_a_time(loop: Parallel, registers: int) -> int:
    """How many iterations have room in registers for their sums, and as much for the rest; 1 where there are
    no sums, or more than operations."""
    sums = {buffer for _, buffer in sums_of(loop.body)}
    plain = is_scalar_code(loop.body) and not _calls(loop.body)
    return max(1, registers // 2 // len(sums)) if sums and plain else 1


def _own(body: Block) -> set[Var]:
    """What an iteration has for itself."""
    allocs = (stmt for stmt in walk(body) if isinstance(stmt, Alloc))
    return {stmt.buffer for stmt in allocs if stmt.buffer.scope() in PER_THREAD}


def sums_of(body: Block) -> list[tuple[For, Var]]:
    """The innermost loops that add up what a variable of the iteration holds, with the variable."""
    own, loops = _own(body), [stmt for stmt in walk(body) if isinstance(stmt, For)]
    inner = [loop for loop in loops if not any(isinstance(stmt, For) for stmt in walk(loop.body))]
    found = [(loop, item.store.buffer) for loop in inner for item in find_accumulations(loop.body, loop.var)]
    return [(loop, buffer) for loop, buffer in found if buffer in own]


def _terms(body: Block) -> int:
    """How many trips the longest loops of a body have, those inside of each other multiplied."""
    inside = [_terms(inner) for stmt in body for inner in children(stmt)]
    return max(
        [_length(stmt) * _terms(stmt.body) for stmt in body if isinstance(stmt, For)] + inside, default=1
    )


def _length(loop: For) -> int:
    trips = known_trips(loop)
    return _MANY if trips is None else len(trips)


def _calls(body: Block) -> bool:
    """Whether functions are called, whose code is long."""
    values = (node for stmt in walk(body) for expr in expressions(stmt) for node in walk_expr(expr))
    names = (getattr(node.op, "name", "") for node in values if isinstance(node, Call))
    return any(name.rpartition(".")[2] not in _BITS for name in names)


def _may_join(loop: Parallel, axis: int) -> bool:
    """Whether iterations along an axis, whose number is known, have loops of the same trips and write
    elements of their own."""
    moving, own, made = dependents(loop.body, loop.vars[axis]), _own(loop.body), written_in(loop.body)
    names = values_of(walk(loop.body))
    loops = [stmt for stmt in walk(loop.body) if isinstance(stmt, For)]
    stores = [stmt for stmt in walk(loop.body) if isinstance(stmt, Store)]
    ends = [inlined(end, names) for stmt in loops for end in (stmt.start, stmt.stop, stmt.step)]
    return (
        (int_value(loop.extents[axis]) or 0) > 1
        and not any(uses(end, moving) or reads(end, made) for end in ends)
        and all(
            store.buffer in own or any(uses(index, moving) for index in store.indices) for store in stores
        )
    )


def _shared(loop: Parallel, axis: int, sums: Sequence[tuple[For, Var]]) -> int:
    """How many elements that loops of sums read are the same for all iterations along an axis."""
    names, var = values_of(walk(loop.body)), loop.vars[axis]
    return sum(
        not any(uses(inlined(index, names), (var,)) for index in item.indices)
        for inner, _ in sums
        for item in _reads(inner)
    )


def _reads(loop: For) -> Iterator[Access]:
    return (
        item for item in accesses(loop.body) if not item.is_write and item.buffer.scope() not in PER_THREAD
    )


def _parts(loop: Parallel, axis: int, lane: int, most: int) -> list[Parallel]:
    """As many iterations at a time as leave few for the end, and those."""
    extent = int_value(loop.extents[axis]) or 0
    count = -(-extent // -(-extent // most))
    whole, left = divmod(extent, count)
    joined = _Joined(loop.vars[lane])
    parts = [_several(loop, axis, whole, range(count), joined)]
    return [*parts, _several(loop, axis, 1, range(whole * count, extent), joined)] if left else parts


def _several(loop: Parallel, axis: int, trips: int, numbers: range, joined: _Joined) -> Parallel:
    """Iterations of some numbers at a time, and of those that follow them in other ``trips``."""
    old = loop.vars[axis]
    var = tirx.Var(str(old.name), dtype_of(old))
    places = [var * len(numbers) + number for number in numbers]
    return replace(
        loop,
        vars=(*loop.vars[:axis], var, *loop.vars[axis + 1 :]),
        extents=(*loop.extents[:axis], trips, *loop.extents[axis + 1 :]),
        body=joined.bodies([copied(renamed(loop.body, {old: place})) for place in places]),
    )


@dataclass(frozen=True, eq=False)
class _Joined:
    """The statements of several iterations as one: their loops, branches with loops, and names of equal
    arithmetic. ``lane`` tells lanes apart."""

    lane: Var

    def bodies(self, bodies: Sequence[Block]) -> Block:
        """Bodies that are the same but for the names in them."""
        made: list[Stmt] = []
        while bodies[0]:
            row, bodies = [body[0] for body in bodies], [body[1:] for body in bodies]
            first = row[0]
            if isinstance(first, Bind) and _is_named_alike(row):
                bodies = [_named(body, stmt, first) for body, stmt in zip(bodies, row, strict=True)]
                row = [first]
            made += self._row(row)
        return tuple(made)

    def _row(self, row: Sequence[Stmt]) -> Sequence[Stmt]:
        first = row[0]
        if isinstance(first, For):
            return self._one_loop(first, row)
        if isinstance(first, If) and any(isinstance(stmt, For) for stmt in walk((first,))):
            return self._one_branch(first, row)
        return row

    def _one_loop(self, first: For, row: Sequence[Stmt]) -> Sequence[Stmt]:
        bodies = [renamed(stmt.body, {stmt.var: first.var}) for stmt in row if isinstance(stmt, For)]
        return [replace(first, body=self.bodies(bodies))]

    def _one_branch(self, first: If, row: Sequence[Stmt]) -> Sequence[Stmt]:
        """One branch where conditions are the same; where they differ, but for no lane, one for where all of
        them hold. Nothing in front of the last one changes what they read."""
        branches = [stmt for stmt in row if isinstance(stmt, If)]
        conds = [branch.cond for branch in branches]
        alike = all(same(cond, conds[0]) for cond in conds)
        parted = not alike and any(uses(cond, (self.lane,)) for cond in conds)
        if parted or any(next(loads(cond), None) is not None for cond in conds):
            return row
        inner = [self.bodies(blocks) for blocks in zip(*map(children, branches), strict=True)]
        if alike:
            return [replace(first, then=inner[0], orelse=inner[1])]
        return [replace(first, cond=all_of(conds), then=inner[0], orelse=copied(tuple(row)))]


def _is_named_alike(row: Sequence[Stmt]) -> bool:
    """Whether names of several iterations are of the same value, whatever these store."""
    values = [stmt.value for stmt in row if isinstance(stmt, Bind)]
    return next(loads(values[0]), None) is None and all(same(value, values[0]) for value in values)


def _named(body: Block, stmt: Stmt, first: Bind) -> Block:
    """A body with the name that another iteration has for the value of ``stmt``."""
    assert isinstance(stmt, Bind)
    return body if stmt is first else renamed(body, {stmt.var: first.var})
