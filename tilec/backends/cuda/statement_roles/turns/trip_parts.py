"""A trip in parts, of which one of two warpgroups may compute the first for both.

In attention with wide heads, scores and weights are the same for both warpgroups, which share the columns of
the result. They take trips in turns: one makes the weights of a trip, the other multiplies those before.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import GiveBack
from tilec.backends.cuda.statement_roles.trips.conflicts import is_known, touched
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Assume, Bind, Block, For, Gemm, Launch, Stmt, walk
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.traits import loads_of, written
from tilec.lowering.analysis.flow import begins_anew
from tilec.lowering.analysis.uses import sets_variable, touches, used_in, written_in

if TYPE_CHECKING:
    from tvm.ir import Var

_HELD = "local.fragment"


@dataclass(frozen=True)
class Step:
    """Statements that make fragments, ``told`` as soon as they are made."""

    body: Block
    told: tuple[Var, ...]


@dataclass(frozen=True)
class TripParts:
    """A trip of a loop: ``first``, up to its first products; ``steps``, which make rows of their results that
    the rest and the next trip need, then ``weights``, then other rows; ``rest``, which multiplies the weights
    and adds to ``sums``. ``places``: what in front of the rest finds stages and names values. ``told``: what
    the steps leave to the rest, to the next trip and to what is behind the loop, in fragments; ``alone``: the
    stages that go back in front of the rest."""

    loop: For
    allocs: tuple[Alloc, ...]
    first: Block
    steps: tuple[Step, ...]
    rest: Block
    places: Block
    sums: frozenset[Var]
    told: tuple[Var, ...]
    weights: frozenset[Var]
    alone: tuple[GiveBack, ...]


def parts_of(loop: For, beside: Set[Var], launch: Launch) -> TripParts:
    """The parts of the trips of a loop; ``beside``: what is read outside of it. Unfit for other trips."""
    need(loop.kind == "serial" and int_value(loop.step) == 1, "its trips are not one by one", loop)
    need(is_known(loop.body), "a trip does more than tile operations", loop)
    allocs: tuple[Alloc, ...] = tuple(stmt for stmt in loop.body if isinstance(stmt, Alloc))
    body = [stmt for stmt in loop.body if stmt not in allocs]
    products = [stmt for stmt in body if isinstance(stmt, Gemm)]
    sums = frozenset(each.c.buffer for each in products if not begins_anew(each.c.buffer, body))
    late = [each for each in products if each.c.buffer in sums]
    early = [each for each in products if each not in late]
    need(bool(late and early), "a trip does not multiply what it makes of products", loop)
    rest = _rest(body, sums)
    ahead = [stmt for stmt in body if stmt not in rest]
    cut = max(map(ahead.index, early)) + 1
    weights = frozenset(each.a.buffer for each in late)
    told = _told(ahead, rest, beside)
    parts = TripParts(
        loop,
        allocs,
        tuple(ahead[:cut]),
        _steps(tuple(ahead[cut:]), rest, told, weights, launch),
        rest,
        tuple(filter(_is_place, ahead)),
        sums,
        told,
        weights,
        tuple(stmt for stmt in ahead if isinstance(stmt, GiveBack)),
    )
    _check(parts, body, launch)
    return parts


def _rest(body: Sequence[Stmt], sums: Set[Var]) -> Block:
    """What meets the sums, the waits for what it alone reads, and what gives back what it reads."""
    users = [stmt for stmt in body if any(touches(stmt, tile) for tile in sums)]
    read = used_in(tuple(users))
    waits = [stmt for place, stmt in enumerate(body) if _user(stmt, body[place:]) in users]
    given = [stmt for stmt in body if isinstance(stmt, GiveBack) and read & set(stmt.tiles)]
    return tuple(stmt for stmt in body if stmt in (*users, *waits, *given))


def _user(wait: Stmt, behind: Sequence[Stmt]) -> Stmt | None:
    """The statement in front of which a wait stands; None for other statements."""
    if not isinstance(wait, WaitPhase):
        return None
    return next((stmt for stmt in behind if not isinstance(stmt, WaitPhase) and not _is_place(stmt)), None)


def _is_place(stmt: Stmt) -> bool:
    """Whether a statement names a value or sets a variable of a thread."""
    return isinstance(stmt, (Bind, Assume)) or sets_variable(stmt)


def _told(ahead: Sequence[Stmt], rest: Block, beside: Set[Var]) -> tuple[Var, ...]:
    """The fragments that a trip writes ahead of its rest, and that others read."""
    made = dict.fromkeys(tile for stmt in walk(tuple(ahead)) for tile in written(stmt))
    read = used_in(rest) | beside
    held = (tile for tile in made if tile.scope() == _HELD)
    return tuple(tile for tile in held if tile in read or not begins_anew(tile, ahead))


def _steps(
    middle: Block, rest: Block, told: tuple[Var, ...], weights: Set[Var], launch: Launch
) -> tuple[Step, ...]:
    """The steps of what makes ``told``: each has what the former ones do not need."""
    rows = {tile for tile in told if tile not in weights and any(touches(stmt, tile) for stmt in rest)}
    made: set[Stmt] = set()
    needed: set[Stmt] = set()
    while True:
        made, needed = _makers(middle, rows), _makers(middle, weights)
        named = used_in(tuple(made | needed))
        carried = (set(told) & named) - weights
        if carried <= rows:
            break
        rows |= carried
    made |= {stmt for stmt in middle if _is_place(stmt) or isinstance(stmt, (WaitPhase, GiveBack))}
    parts = (made, needed - made, set(middle) - made - needed)
    bodies = [tuple(stmt for stmt in middle if stmt in part) for part in parts]
    if _changes(middle, sum(bodies, ()), launch):
        return (Step(middle, told),)
    others = tuple(tile for tile in told if tile not in rows and tile not in weights)
    tiles = (tuple(tile for tile in told if tile in rows), tuple(weights), others)
    return tuple(Step(body, own) for body, own in zip(bodies, tiles, strict=True) if body or own)


def _makers(block: Block, tiles: Set[Var]) -> set[Stmt]:
    """The statements of a block that the values of tiles come from."""
    needed, found = set(tiles), set[Stmt]()
    for stmt in reversed(block):
        if needed & written_in((stmt,)):
            found.add(stmt)
            needed |= used_in((stmt,))
    return found


def _changes(before: Block, after: Block, launch: Launch) -> bool:
    """Whether statements that touch the same change places."""
    place = {stmt: number for number, stmt in enumerate(after)}
    touches_of = [touched((stmt,), launch) for stmt in before]
    return any(
        place[one] > place[other] and touches_of[first].conflicts(touches_of[second])
        for first, one in enumerate(before)
        for second, other in enumerate(before[first + 1 :], first + 1)
    )


def _check(parts: TripParts, body: Sequence[Stmt], launch: Launch) -> None:
    """Unfit for a trip whose parts cannot change places as warpgroups that take turns need it."""
    loop = parts.loop
    every = [stmt for stmt in walk(loop.body) if isinstance(stmt, Gemm)]
    need(all(stmt in body for stmt in every), "a product is in a branch", loop)
    need(all(stmt.init is None for stmt in parts.allocs), "a trip begins with a variable", loop)
    need(parts.weights <= set(parts.told), "what it multiplies is not made in registers", loop)
    rows = [tile for tile in parts.told if tile not in parts.weights]
    need(all(len(tile.shape) == 1 for tile in rows), "it leaves more than rows to the next trip", loop)
    named = used_in(parts.first)
    need(not named & {*parts.told, *parts.sums}, "its first products need the trip before", loop)
    need(not _reads_fragments(parts.places), "a place comes from a fragment", loop)
    stored = {tile.scope() for tile in written_in(loop.body)}
    need(stored <= {_HELD, "local.var", "shared.barrier"}, "it writes more than registers", loop)
    need(not _crosses(body, parts.rest, launch), "others need what its last products stand in front of", loop)


def _reads_fragments(block: Block) -> bool:
    found = (load.source for load in loads_of(*block))
    return any(source.scope() == _HELD for source in found)


def _crosses(body: Sequence[Stmt], rest: Block, launch: Launch) -> bool:
    """Whether it counts that statements of the rest stand in front of others."""
    free = (WaitPhase, GiveBack)
    for place, stmt in enumerate(body):
        if stmt not in rest or isinstance(stmt, free):
            continue
        later = (each for each in body[place:] if each not in rest and not isinstance(each, free))
        own = touched((stmt,), launch)
        if any(own.conflicts(touched((each,), launch)) for each in later):
            return True
    return False
