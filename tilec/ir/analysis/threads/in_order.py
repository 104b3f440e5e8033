"""Kernels with groups of threads for machines that run one thing after the other.

Groups that wait for each other can run in turns, without barriers, where some order of their statements has
every phase end before anyone waits for it. That order is the program's own, or one that brings together the
loops of groups which stand side by side. Whether it does, `tilec.ir.analysis.threads.phases` finds out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.analysis.outermost import outermost
from tilec.ir.analysis.renaming import renamed
from tilec.ir.analysis.threads.groups import Span
from tilec.ir.analysis.threads.interleave import Manner, interleaved
from tilec.ir.analysis.threads.phases import Blocked, check_phases
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Block,
    Copy,
    If,
    Kernel,
    Launch,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import (
    AllocBarrier,
    Arrive,
    BulkLoad,
    ClusterBarrier,
    ClusterCopy,
    ExpectBytes,
    GridBarrier,
    Group,
    NamedArrive,
    SetRegisters,
    WaitPhase,
    WaitProducts,
)
from tilec.ir.nodes.threads import LANE_PRODUCTS, PER_THREAD, Lane, Return, Sync, ThreadReduce
from tilec.ir.places import place_of
from tilec.ir.traits import mentioned

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_BARRIERS = (AllocBarrier, Arrive, ExpectBytes, WaitPhase, SetRegisters, WaitProducts)
_KINDS = (Group, BulkLoad, ClusterBarrier, ClusterCopy, GridBarrier, NamedArrive, *_BARRIERS)


def in_order(kernel: Kernel, *, together: bool = False) -> Kernel:
    """``kernel`` without groups and barriers, with the same results; ``together``: the loops of groups
    become one even where they could run one after the other. UnsupportedError where groups have to run at the
    same time, or where that depends on data."""
    body = tuple(
        _launch(stmt, kernel, together) if isinstance(stmt, Launch) else stmt for stmt in kernel.body
    )
    return replace(kernel, body=body)


def _launch(launch: Launch, kernel: Kernel, together: bool) -> Launch:
    if not any(isinstance(stmt, _KINDS) for stmt in walk(launch.body)):
        return launch
    _refuse_meetings(launch)
    ordered = _ordered(replace(launch, body=_own_scalars(launch.body)), kernel, together)
    plain = replace(ordered, body=_plain(ordered.body, None))
    if _is_uniform(plain):
        return replace(plain, thread_vars=())
    waits = any(isinstance(stmt, WaitPhase) for stmt in walk(launch.body))
    return replace(launch, body=_plain(ordered.body if waits else launch.body, launch))


def _refuse_meetings(launch: Launch) -> None:
    """Blocks run one after the other: none can wait for another. Nor is it known who comes to a named
    barrier."""
    for stmt in walk(launch.body):
        if isinstance(stmt, NamedArrive):
            raise UnsupportedError(
                "T.named_barrier_arrive has no sequential form",
                place=place_of(stmt, "T.named_barrier_arrive"),
                remedy="use T.alloc_barrier, T.barrier_arrive and T.barrier_wait, or build for CUDA alone",
            )
        if isinstance(stmt, GridBarrier):
            raise UnsupportedError(
                "T.sync_grid: blocks that wait for each other have no sequential form",
                place=place_of(stmt, "T.sync_grid"),
                remedy="split the kernel into two T.Kernel in a row, or build for CUDA alone",
            )
        if isinstance(stmt, ClusterCopy):
            raise UnsupportedError(
                "T.copy_cluster: there are no clusters of blocks outside of CUDA",
                place=place_of(stmt, "T.copy_cluster"),
                remedy="use T.copy in each block, or build for CUDA alone (sm_90a)",
            )
        if isinstance(stmt, ClusterBarrier) or (isinstance(stmt, Arrive) and stmt.block is not None):
            raise UnsupportedError(
                "blocks of a cluster that wait for each other have no sequential form",
                place=place_of(stmt),
                remedy="build for CUDA alone (sm_90a), or let each block work for itself",
            )


def _is_uniform(launch: Launch) -> bool:
    """Whether no statement of a launch without groups is one of threads, or depends on which thread it is.
    Atomic updates outside of loops happen once for each thread."""
    names = set(launch.thread_vars)
    return not any(
        isinstance(stmt, (Sync, Return, Lane, ThreadReduce, Atomic, *LANE_PRODUCTS))
        or mentioned(stmt) & names
        for stmt in outermost(launch.body)
    )


def _ordered(launch: Launch, kernel: Kernel, together: bool) -> Launch:
    """The launch with its groups in an order in which no wait blocks."""
    if not any(isinstance(stmt, WaitPhase) for stmt in walk(launch.body)):
        return launch
    first: Blocked | None = None
    for candidate in _candidates(launch, together):
        try:
            check_phases(candidate, kernel)
        except Blocked as blocked:
            first = first or blocked
        else:
            return candidate
    assert first is not None
    word = "T.mbarrier_arrive" if isinstance(first.stmt, Arrive) else "T.mbarrier_wait_parity"
    raise UnsupportedError(
        "groups of threads that wait for each other at the same time have no sequential form",
        place=place_of(first.stmt, word),
        why=first.why,
        remedy="put the groups side by side in one loop, producers first (for ...: with T.ws(0): ... "
        "with T.ws(1): ...), or build for CUDA alone",
    )


def _candidates(launch: Launch, together: bool) -> Iterator[Launch]:
    """The program's own order, then those that bring loops of groups together."""
    if not together:
        yield launch
    spans = list(dict.fromkeys(_span(stmt) for stmt in walk(launch.body) if isinstance(stmt, Group)))
    for lead, finely in ((0, False), (0, True), (1, False), (1, True), (2, False)):
        for order in permutations(spans):
            yield replace(launch, body=interleaved(launch.body, Manner(order, finely, lead)))


def _span(group: Group) -> Span:
    return (group.first, group.count)


# ---- scalars of threads ----


def _own_scalars(body: Block) -> Block:
    """``body`` with variables of threads that groups write as variables of each group: their threads have
    theirs.

    What the whole block stores to such a variable, all groups store. It keeps reading the variable as it was
    before the groups."""
    spans = _writers(body)
    return body if not spans else _Scalars(spans).block(body, None)


def _writers(body: Block) -> dict[Var, list[Span]]:
    """Variables that are allocated outside of groups and written in some, with the groups that name them."""
    outer = {
        stmt.buffer
        for stmt in _outside(body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope() in PER_THREAD
    }
    groups = [stmt for stmt in walk(body) if isinstance(stmt, Group)]
    written = {
        stmt.buffer
        for group in groups
        for stmt in walk(group.body)
        if isinstance(stmt, Store) and stmt.buffer in outer
    }
    found: dict[Var, list[Span]] = {}
    for group in groups:
        for stmt in walk(group.body):
            for buffer in mentioned(stmt) & written:
                spans = found.setdefault(buffer, [])
                spans += [_span(group)] if _span(group) not in spans else []
    return found


def _outside(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        if not isinstance(stmt, Group):
            for inner in children(stmt):
                yield from _outside(inner)


class _Scalars:
    """Gives the groups of ``spans`` variables of their own."""

    def __init__(self, spans: dict[Var, list[Span]]) -> None:
        self._copies: dict[Var, dict[Span, Var]] = {
            buffer: {span: _like(buffer, number) for number, span in enumerate(owners)}
            for buffer, owners in spans.items()
        }

    def block(self, block: Block, span: Span | None) -> Block:
        """The statements of a block that a group (None: all threads) runs."""
        return tuple(new for stmt in block for new in self._stmt(stmt, span))

    def _stmt(self, stmt: Stmt, span: Span | None) -> Sequence[Stmt]:
        if isinstance(stmt, Group):
            names = {b: copies[_span(stmt)] for b, copies in self._copies.items() if _span(stmt) in copies}
            return [replace(stmt, body=renamed(stmt.body, names))]
        if isinstance(stmt, (Alloc, Store)) and stmt.buffer in self._copies:
            return [stmt, *(replace(stmt, buffer=copy) for copy in self._copies[stmt.buffer].values())]
        return [with_children(stmt, [self.block(inner, span) for inner in children(stmt)])]


def _like(buffer: Var, number: int) -> Var:
    scope = str(buffer.scope())
    return tirx.decl_buffer(buffer.shape, str(buffer.dtype), f"{buffer.name}_{number}", scope=scope)


# ---- without barriers ----


def _plain(block: Block, launch: Launch | None) -> Block:
    """``block`` without barriers; groups are conditions on the threads of ``launch``, if there is one."""
    return tuple(new for stmt in block for new in _plain_stmt(stmt, launch))


def _plain_stmt(stmt: Stmt, launch: Launch | None) -> Sequence[Stmt]:
    if isinstance(stmt, _BARRIERS):
        return []
    if isinstance(stmt, BulkLoad):
        return [Copy(stmt.src, stmt.dst, stmt.hints, loc=stmt.loc)]
    if isinstance(stmt, Group):
        inner = _plain(stmt.body, launch)
        if launch is None or not launch.thread_vars or not inner:
            return inner
        return [If(_among(stmt, launch), inner, loc=stmt.loc)]
    made = [_plain(inner, launch) for inner in children(stmt)]
    return [] if isinstance(stmt, If) and not any(made) else [with_children(stmt, made)]


def _among(group: Group, launch: Launch) -> Expr:
    """Whether a thread belongs to a group."""
    x, y, z = launch.thread_vars
    width, height, _ = launch.threads
    thread = x
    if launch.threads[1:] != (1, 1):
        thread = x + (y + z * tirx.const(height, dtype_of(z))) * tirx.const(width, dtype_of(y))
    first, end = (tirx.const(value, "int32") for value in (group.first, group.first + group.count))
    return tirx.And(tirx.GE(thread, first), tirx.LT(thread, end))
