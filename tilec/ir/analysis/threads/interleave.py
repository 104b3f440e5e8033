"""Groups of threads that stand side by side, with their statements in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx

from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.analysis.threads.groups import Span
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Break,
    Continue,
    For,
    If,
    Pipelined,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.serial import serial_loop

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_Loop: TypeAlias = "For | Pipelined"
_Joint: TypeAlias = "For | Pipelined | If"
_LOOPS = (For, Pipelined)


@dataclass(frozen=True)
class _Turn:
    """What a group does next."""

    span: Span
    body: Block


@dataclass(frozen=True)
class Manner:
    """How groups take turns: in ``order``, trip by trip; ``finely``: within a trip up to every wait. Groups
    that wait before their loop let the loops of the others run ``lead`` trips ahead. ``names`` are those for
    values around the statements that take turns."""

    order: tuple[Span, ...]
    finely: bool
    lead: int
    names: Mapping[Var, Expr] = field(default_factory=dict)

    def inside(self, block: Block) -> Manner:
        """Those of the statements in a block, which also sees its names."""
        binds = (stmt for stmt in block if isinstance(stmt, Bind))
        own = {stmt.var: stmt.value for stmt in binds if not any(True for _ in loads(stmt.value))}
        return replace(self, names={**self.names, **own}) if own else self


def interleaved(block: Block, how: Manner) -> Block:
    """``block`` where groups that follow each other go through their loops together."""
    made: list[Stmt] = []
    run: list[Group] = []
    how = how.inside(block)
    for stmt in block:
        if isinstance(stmt, Group):
            run.append(stmt)
            continue
        made += _side_by_side(run, how)
        run = []
        made.append(with_children(stmt, [interleaved(inner, how) for inner in children(stmt)]))
    return (*made, *_side_by_side(run, how))


def _side_by_side(run: Sequence[Group], how: Manner) -> Block:
    turns = []
    for span in how.order:
        body = tuple(stmt for group in run if (group.first, group.count) == span for stmt in group.body)
        turns += [_Turn(span, body)] if body else []
    return _merged(turns, how)


def _merged(turns: Sequence[_Turn], how: Manner) -> Block:
    """The statements of all groups: loops and branches that wait together, what stands between them in
    turns."""
    how = how.inside(tuple(stmt for turn in turns for stmt in turn.body))
    parts = [list(_around_joints(turn, (For, Pipelined, If))) for turn in turns]
    counts = {len(own) for own in parts if len(own) > 1}
    if len(counts) > 1:
        parts = [list(_around_joints(turn, _LOOPS)) for turn in turns]
        counts = {len(own) for own in parts if len(own) > 1}
    if len(counts) != 1 or sum(len(own) > 1 for own in parts) < 2:
        return tuple(stmt for turn in _ordered(turns, how) for stmt in _as_group(turn))
    made: list[Stmt] = []
    for row in zip_longest(*parts):
        own = [(turn.span, *part) for turn, part in zip(turns, row, strict=True) if part is not None]
        made += _row(own, how)
    return tuple(made)


def _row(parts: Sequence[tuple[Span, Block, _Joint | None]], how: Manner) -> Block:
    """What stands before the loops or branches, and these. Those of groups that wait before them come behind
    the first trips of the others."""
    waiting = {span for span, before, _ in parts if any(map(_waits, before))} if how.lead else set()
    made: list[Stmt] = []
    loops: list[tuple[Span, _Joint]] = []
    for late in (False, True):
        turns = [_Turn(span, before) for span, before, _ in parts if before and (span in waiting) == late]
        made += [stmt for turn in _ordered(turns, how) for stmt in _as_group(turn)]
        for span, _, loop in parts if not late else ():
            if isinstance(loop, _LOOPS) and waiting and span not in waiting:
                made.append(Group(*span, (_first_trips(loop, how.lead),), loc=loop.loc))
    for span, _, loop in parts:
        if isinstance(loop, _LOOPS) and waiting and span not in waiting:
            loops.append((span, _other_trips(loop, how.lead)))
        elif loop is not None:
            loops.append((span, loop))
    return (*made, *_fused(loops, how))


def _first_trips(loop: _Loop, count: int) -> _Loop:
    """The first trips of a loop, with names of their own."""
    (made,) = copied((replace(loop, stop=tirx.min(_after(loop, count), loop.stop)),))
    assert isinstance(made, (For, Pipelined))
    return made


def _other_trips(loop: _Loop, count: int) -> _Loop:
    """What `_first_trips` leaves."""
    return replace(loop, start=_after(loop, count))


def _after(loop: _Loop, count: int) -> Expr:
    return loop.start + _step(loop) * tirx.const(count, dtype_of(loop.var))


def _around_joints(turn: _Turn, kinds: tuple[type[Stmt], ...]) -> Iterator[tuple[Block, _Joint | None]]:
    """The statements of a group up to each loop that waits, or branch with such a loop, with it; then the
    rest with None."""
    start = 0
    for position, stmt in enumerate(turn.body):
        if isinstance(stmt, (For, Pipelined, If)) and isinstance(stmt, kinds) and _waits_in_loops(stmt):
            yield turn.body[start:position], stmt
            start = position + 1
    yield turn.body[start:], None


def _waits(stmt: Stmt) -> bool:
    return any(isinstance(inner, WaitPhase) for inner in walk((stmt,)))


def _waits_in_loops(stmt: Stmt) -> bool:
    return any(isinstance(inner, _LOOPS) and _waits(inner) for inner in walk((stmt,)))


def _ordered(turns: Sequence[_Turn], how: Manner) -> list[_Turn]:
    """One group after the other, or all of them up to their next wait."""
    if not how.finely:
        return list(turns)
    cut = [list(_up_to_waits(turn)) for turn in turns]
    return [turn for row in zip_longest(*cut) for turn in row if turn is not None]


def _up_to_waits(turn: _Turn) -> Iterator[_Turn]:
    own: list[Stmt] = []
    for stmt in turn.body:
        if own and _waits(stmt):
            yield _Turn(turn.span, tuple(own))
            own = []
        own.append(stmt)
    yield _Turn(turn.span, tuple(own))


def _as_group(turn: _Turn) -> Iterator[Stmt]:
    """The statements of a group as statements of the block: what they define stays defined for those
    behind."""
    own: list[Stmt] = []
    for stmt in (*turn.body, None):
        if stmt is not None and not isinstance(stmt, (Alloc, Bind)):
            own.append(stmt)
            continue
        if own:
            yield Group(*turn.span, tuple(own), loc=own[0].loc)
            own = []
        if stmt is not None:
            yield stmt


# ---- loops and branches ----


def _fused(joints: Sequence[tuple[Span, _Joint]], how: Manner) -> Block:
    """Loops, or branches, of several groups as one."""
    loops = [(span, stmt) for span, stmt in joints if isinstance(stmt, _LOOPS)]
    branches = [(span, stmt) for span, stmt in joints if isinstance(stmt, If)]
    leaves = any(isinstance(stmt, (Break, Continue)) for _, joint in joints for stmt in walk((joint,)))
    if leaves or (loops and branches):
        return tuple(Group(*span, (joint,), loc=joint.loc) for span, joint in joints)
    if branches:
        return _one_branch(branches, how)
    return _one_loop(loops, how) if loops else ()


def _one_loop(loops: Sequence[tuple[Span, _Loop]], how: Manner) -> Block:
    first = loops[0][1]
    if all(_same_trips(first, loop, how) for _, loop in loops[1:]):
        turns = [_Turn(span, renamed(loop.body, {loop.var: first.var})) for span, loop in loops]
        return (replace(first, body=_merged(turns, how)),)
    return _over_longest(loops)


def _one_branch(branches: Sequence[tuple[Span, If]], how: Manner) -> Block:
    """Branches on one condition, which no group changes before the others come to it."""
    first = branches[0][1]
    conds = [inlined(branch.cond, how.names) for _, branch in branches]
    steady = not any(True for cond in conds for _ in loads(cond))
    if not steady or not all(same(cond, conds[0]) for cond in conds):
        return tuple(Group(*span, (branch,), loc=branch.loc) for span, branch in branches)
    then, orelse = (
        _merged([_Turn(span, part) for span, branch in branches if (part := children(branch)[side])], how)
        for side in (0, 1)
    )
    return (replace(first, then=then, orelse=orelse),)


def _same_trips(one: _Loop, other: _Loop, how: Manner) -> bool:
    """Whether both loops have the same values of their variables."""
    if dtype_of(one.var) != dtype_of(other.var) or not same(_step(one), _step(other)):
        return False
    analyzer = sym.Analyzer()
    pairs = ((one.start, other.start), (one.stop, other.stop))
    return all(
        int_value(analyzer.simplify(inlined(left, how.names) - inlined(right, how.names))) == 0
        for left, right in pairs
    )


def _step(loop: _Loop) -> Expr:
    return loop.step if isinstance(loop, For) else tirx.const(1, dtype_of(loop.var))


def _over_longest(loops: Sequence[tuple[Span, _Loop]]) -> Block:
    """Loops of different lengths: each group goes on as long as it has trips."""
    trip = tirx.Var("trip", "int32")
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    body: list[Stmt] = []
    most = zero
    for span, loop in loops:
        step = _step(loop)
        count = tirx.Cast("int32", tirx.floordiv(loop.stop - loop.start + step - one, step))
        most = tirx.Max(most, count)
        value = loop.start + tirx.Cast(dtype_of(loop.var), trip) * step
        inner = (Bind(loop.var, value), *loop.body)
        body.append(If(tirx.LT(trip, count), (Group(*span, inner, loc=loop.loc),), loc=loop.loc))
    return (serial_loop(trip, most, tuple(body), loops[0][1].loc),)
