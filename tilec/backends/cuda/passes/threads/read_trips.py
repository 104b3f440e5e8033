"""Threads' own loops read what several trips want in front of the first one.

    for k: a[0:4] = A[k * 4:k * 4 + 4]; s += f(a)
    ->
    for g: a0[0:4] = A[..]; a1[0:4] = A[..]; s += f(a0); s += f(a1)

A trip that begins with reads waits for memory, and of few bytes a thread too few are on their way for that to
be hidden: one row by 4-bit weights, 4 bytes of them and 16 of the row a trip, takes 34 us on an H200, with
four trips in front 25.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import ThreadVector
from tilec.ir.analysis.known_trips import whole_trips
from tilec.ir.analysis.renaming import in_trip, like, renamed
from tilec.ir.exprs import int_value, loads
from tilec.ir.nodes import Alloc, Bind, Block, For, Launch, Stmt, Store, walk
from tilec.lowering.analysis.uses import changed_in, order_counts, users, written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, replaced
from tilec.lowering.trip_pairs import in_groups, left_of, runs_in_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from tvm.ir import Expr, Var

#: Bytes of a thread's registers for what trips read, in how many trips at most; statements of what is written
#: out for that.
_ROOM, _DEEPEST, _WRITTEN_OUT = 80, 8, 128


class ReadTrips(LaunchPass):
    """In: launches whose threads' vectors are known. Out: a serial loop that begins with vectors from tensors
    that nothing writes, to arrays that it has for itself, runs over groups of trips, which begin with those
    of all their trips."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its loops in groups."""
        loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, For) and _has_vectors(stmt)]
        if not loops or not launch.thread_vars or order_counts(launch):
            return launch
        changed, used = changed_in(launch), users(launch.body)
        made: dict[Stmt, Block] = {
            loop: found for loop in loops if (found := _grouped(loop, changed, used)) is not None
        }
        return replace(launch, body=replaced(launch.body, made)) if made else launch


def _has_vectors(loop: For) -> bool:
    return any(isinstance(stmt, ThreadVector) for stmt in loop.body)


def _grouped(loop: For, changed: Set[Var], used: Mapping[Var, Sequence[Stmt]]) -> Block | None:
    """A loop in groups of trips and the trips that are left; None where it does not begin with such reads, or
    has too few trips or too much to do in one."""
    front = tuple(takewhile(lambda stmt: _is_ahead(stmt, changed), loop.body))
    arrays = [stmt.buffer for each in front for stmt in walk((each,)) if isinstance(stmt, Store)]
    if not arrays or loop.kind != "serial" or not runs_in_groups(loop):
        return None
    own = set(walk(loop.body))
    kept = any(stmt not in own for array in arrays for stmt in used[array])
    if kept or not written_in(loop.body[len(front) :]).isdisjoint(arrays):
        return None
    depth = _depth(loop, front, len(own))
    return None if depth < 2 else _in_groups(loop, len(front), arrays, depth)


def _is_ahead(stmt: Stmt, changed: Set[Var]) -> bool:
    """Whether a statement may run before the trips in front of its own: an array, a name of numbers, a vector
    from tensors that nothing writes, at places that nothing in memory tells."""
    if isinstance(stmt, Alloc):
        return bool(stmt.buffer.scope() == "local")
    if isinstance(stmt, Bind):
        return next(loads(stmt.value), None) is None
    return isinstance(stmt, ThreadVector) and all(_reads(inner, changed) for inner in stmt.body)


def _reads(stmt: Stmt, changed: Set[Var]) -> bool:
    if not isinstance(stmt, Store) or stmt.buffer.scope() != "local":
        return False
    found = list(loads(stmt.value))
    places = [index for load in found for index in load.indices] + list(stmt.indices)
    fixed = all(load.source.scope() == "global" and load.source not in changed for load in found)
    return bool(found) and fixed and not any(next(loads(place), None) for place in places)


def _depth(loop: For, front: Block, statements: int) -> int:
    """How many trips a group has: a power of two."""
    bytes_of_trip = sum(
        (int_value(stmt.stop) or 0) * element_bytes(str(load.source.dtype))
        for stmt in front if isinstance(stmt, ThreadVector)
        for store in stmt.body if isinstance(store, Store)
        for load in loads(store.value)
    )  # fmt: skip
    most = min(_DEEPEST, _ROOM // bytes_of_trip, _WRITTEN_OUT // statements)
    trips = whole_trips(loop)
    if trips is not None:
        most = min(most, len(trips) // 2)
    return 1 << most.bit_length() - 1 if most else 0


def _in_groups(loop: For, front: int, arrays: Sequence[Var], depth: int) -> Block:
    """The loop in groups of ``depth`` trips, whose first ``front`` statements stand in front of all others,
    and the trips behind the last whole group."""
    inside = {stmt.buffer for stmt in loop.body if isinstance(stmt, Alloc)}
    names = [{array: like(array) for array in arrays if array not in inside} for _ in range(depth)]
    groups, count = in_groups(loop, [renamed(loop.body, each) for each in names])
    step = len(loop.body)
    trips = [groups.body[step * turn : step * (turn + 1)] for turn in range(depth)]
    allocs = (Alloc(array) for each in names for array in each.values())
    first = (stmt for trip in trips for stmt in trip[:front])
    rest = (stmt for trip in trips for stmt in trip[front:])
    return (replace(groups, body=(*allocs, *first, *rest)), *_left(loop, count, depth))


def _left(loop: For, count: Expr, depth: int) -> Block:
    """The trips of a loop behind whole groups of ``depth`` of ``count``."""
    left = left_of(count, depth)
    if int_value(left) == 0:
        return ()
    var = like(loop.var)
    return (replace(loop, var=var, start=loop.stop - left, body=in_trip(loop, var)),)
