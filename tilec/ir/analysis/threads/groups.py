"""Kernels whose threads part ways: conditions on thread indices as groups, and to whom fragments belong.

A condition that holds for consecutive warps, around what threads do together, becomes a `Group`. A fragment
that groups use belongs to them: each has one of its own, and what the whole block does to it, they do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.errors import UnsupportedError
from tilec.ir.analysis.renaming import renamed
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import all_of, conjuncts
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.interp.expressions import Compiler, State
from tilec.ir.nodes import (
    COLLECTIVE,
    Alloc,
    Atomic,
    Bind,
    Block,
    Copy,
    Fill,
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
    WARP,
    AllocBarrier,
    BulkLoad,
    ClusterCopy,
    Group,
    SetRegisters,
    WaitProducts,
)
from tilec.ir.nodes.threads import PER_THREAD, Sync
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import loads_of, mentioned

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What threads, and groups, have of their own.
_HELD = ("local.fragment", *PER_THREAD)
#: The threads of a group: the first one and how many.
Span = tuple[int, int]


def with_groups(kernel: Kernel) -> Kernel:
    """``kernel`` with its groups spelled out. UnsupportedError for tile statements under a condition that
    holds for other threads than consecutive warps, and for fragments that cannot belong to a group."""
    body = tuple(_launch(stmt) if isinstance(stmt, Launch) else stmt for stmt in kernel.body)
    return replace(kernel, body=body)


def _launch(launch: Launch) -> Launch:
    if launch.thread_vars:
        ranges = _Ranges(launch)
        launch = replace(launch, body=ranges.block(launch.body, ranges.sets.whole))
    stmts = list(walk(launch.body))
    if not any(isinstance(stmt, AllocBarrier) for stmt in stmts):
        launch = _without_wishes(launch)
    if not any(isinstance(stmt, Group) for stmt in stmts):
        return launch
    return replace(launch, body=_Owners(launch.body).block(launch.body, None))


def _without_wishes(launch: Launch) -> Launch:
    """A launch without barriers of its author: registers and waits for products are the compiler's alone."""
    roads = [asks_in_vain(stmt, "registers are shared out by tilec and the assembler")
             for stmt in walk(launch.body) if isinstance(stmt, SetRegisters)]  # fmt: skip
    return replace(launch, body=_without(launch.body), roads=(*launch.roads, *roads))


def _without(block: Block) -> Block:
    return tuple(
        with_children(stmt, [_without(inner) for inner in children(stmt)])
        for stmt in block
        if not isinstance(stmt, (SetRegisters, WaitProducts))
    )


def asks_in_vain(stmt: SetRegisters, why: str) -> Road:
    """The road of a wish for registers that nothing obeys."""
    file, line = ("", 0) if stmt.loc is None else (stmt.loc.file, stmt.loc.line)
    word = "T.inc_max_nreg" if stmt.more else "T.dec_max_nreg"
    return Road(word, "hint", "not as its author asks", file, line, Loss("", why, "leave it out"))


def is_collective(block: Block) -> bool:
    """Whether threads do something together in a block."""
    return any(
        isinstance(stmt, (*COLLECTIVE, ClusterCopy)) or (isinstance(stmt, BulkLoad) and not stmt.alone)
        for stmt in walk(block)
    )


def meets(block: Block) -> bool:
    """Whether the threads that run a block wait for each other in it, or read what others of them write."""
    stmts = list(walk(block))
    written = {stmt.buffer for stmt in stmts if isinstance(stmt, (Store, Atomic))}
    read = {load.source for load in loads_of(*stmts)}
    exchanged = any(buffer.scope() == "shared.dyn" for buffer in written & read)
    return exchanged or any(isinstance(stmt, Sync) and stmt.barrier is None for stmt in stmts)


# ---- conditions ----


class ThreadSets:
    """For which threads of a launch conditions hold that follow from the index of a thread alone. ``whole``
    are all of them, in the order x, y, z."""

    def __init__(self, launch: Launch) -> None:
        x, y, z = launch.threads
        linear = np.arange(x * y * z, dtype=np.int32)
        self.whole = np.ones(linear.shape, np.bool_)
        self._state, self._compile = State(), Compiler()
        self._known: set[Var] = set()
        indices = (linear % x, linear // x % y, linear // (x * y))
        for var, value in zip(launch.thread_vars, indices, strict=False):
            self._set(var, value)

    def learn(self, stmt: Bind) -> None:
        """A name for a value."""
        if self.knows(stmt.value):
            self._set(stmt.var, self._compile(stmt.value)(self._state))

    def _set(self, var: Var, value: Any) -> None:
        self._state.scalars[self._compile.number(var)] = value
        self._known.add(var)

    def knows(self, expr: Expr) -> bool:
        """Whether an expression follows from the index of a thread alone."""
        nodes = list(walk_expr(expr))
        names = [node for node in nodes if isinstance(node, Var)]
        plain = not any(isinstance(node, (TensorLoad, Call)) for node in nodes)
        return plain and bool(names) and all(name in self._known for name in names)

    def holds(self, cond: Expr) -> np.ndarray:
        """For each thread whether a condition that is known holds."""
        found = np.broadcast_to(self._compile(cond)(self._state), self.whole.shape)
        return np.asarray(found.astype(np.bool_))


class _Ranges:
    """Rewrites the conditions of one launch. ``active`` are the threads that run a block."""

    def __init__(self, launch: Launch) -> None:
        self.sets = ThreadSets(launch)
        self._uniformity = Uniformity(launch)

    def block(self, block: Block, active: np.ndarray) -> Block:
        """The statements of a block."""
        return tuple(new for stmt in block for new in self._stmt(stmt, active))

    def _stmt(self, stmt: Stmt, active: np.ndarray) -> Block:
        if isinstance(stmt, Bind):
            self.sets.learn(stmt)
        if isinstance(stmt, Group):
            inside = np.zeros_like(active)
            inside[stmt.first : stmt.first + stmt.count] = True
            return (replace(stmt, body=self.block(stmt.body, active & inside)),)
        if isinstance(stmt, If) and any(is_collective(side) or meets(side) for side in children(stmt)):
            return self._branch(stmt, active)
        if self._uniformity.parts(stmt) and any(map(is_collective, children(stmt))):
            raise _divergent(stmt)
        return (with_children(stmt, [self.block(part, active) for part in children(stmt)]),)

    def _branch(self, stmt: If, active: np.ndarray) -> Block:
        """A condition around what threads do together: groups where it tells threads apart."""
        known: list[Expr] = []
        others: list[Expr] = []
        for part in conjuncts(stmt.cond):
            (known if self.sets.knows(part) else others).append(part)
        parted = self._uniformity.varies(*others) or bool(known and others and stmt.orelse)
        if parted and any(map(is_collective, children(stmt))):
            raise _divergent(stmt)
        if parted or not known:
            return (with_children(stmt, [self.block(part, active) for part in children(stmt)]),)
        cond = all_of(known)
        taken = self.sets.holds(cond)
        then: Block = stmt.then
        for part in reversed(others):
            then = (If(part, then, loc=stmt.loc),)
        return (
            *self._side(If(cond, then, loc=stmt.loc), active & taken, active),
            *self._side(If(tirx.Not(cond), stmt.orelse, loc=stmt.loc), active & ~taken, active),
        )

    def _side(self, branch: If, holds: np.ndarray, active: np.ndarray) -> Block:
        """One side of a branch, whose condition holds for the threads of ``holds``."""
        if not branch.then or not holds.any():
            return ()
        inner = self.block(branch.then, holds)
        if (holds == active).all() or all(isinstance(stmt, Group) for stmt in inner):
            return inner
        first, count = int(holds.argmax()), int(holds.sum())
        is_range = bool(holds[first : first + count].all())
        if is_range and first % WARP == 0 and count % WARP == 0:
            return (Group(first, count, inner, loc=branch.loc),)
        if count == 1:
            inner = _alone(inner)
        if not is_collective(inner):
            return (replace(branch, then=inner),)
        if not is_range:
            raise _divergent(branch)
        return tuple(self._apart(stmt, branch) for stmt in inner)

    def _apart(self, stmt: Stmt, branch: If) -> Stmt:
        """One statement of a side that a range of threads takes, but no whole warps: what all threads that
        come to the branch can do as well, they do together."""
        if isinstance(stmt, (Alloc, Bind)):
            return stmt
        if not is_collective((stmt,)):
            return replace(branch, then=(stmt,), loc=stmt.loc)
        named = {name for inner in walk((stmt,)) for name in mentioned(inner)}
        own = any(tirx.is_buffer_var(name) and name.scope() in _HELD for name in named)
        if not isinstance(stmt, COLLECTIVE) or own or named & self._uniformity.varying:
            raise _divergent(branch)
        return stmt


def _alone(block: Block) -> Block:
    """``block`` as a single thread runs it."""
    inside = (with_children(stmt, [_alone(inner) for inner in children(stmt)]) for stmt in block)
    return tuple(replace(stmt, alone=True) if isinstance(stmt, BulkLoad) else stmt for stmt in inside)


def _divergent(stmt: Stmt) -> UnsupportedError:
    return UnsupportedError(
        "tile operations under a condition that does not hold for whole warps which follow each other",
        place=place_of(stmt),
        why="the threads that run a tile operation share its work",
        remedy="let them be consecutive warps (T.ws, tx < 128), or write each thread's work with T.serial",
    )


# ---- fragments ----


class _Owners:
    """Gives each group a fragment of its own where several use one. ``spans`` are the groups that use a
    fragment which is allocated outside of them."""

    def __init__(self, body: Block) -> None:
        self.spans: dict[Var, list[Span]] = {}
        self._count(body, None, set())
        self._own: dict[tuple[Var, Span], Var] = {
            (buffer, span): buffer if place == 0 else _copy_of(buffer, place)
            for buffer, spans in self.spans.items()
            for place, span in enumerate(spans)
        }

    def _count(self, block: Block, span: Span | None, outer: set[Var]) -> None:
        for stmt in block:
            if isinstance(stmt, Alloc) and span is None and stmt.buffer.scope() == "local.fragment":
                outer.add(stmt.buffer)
            if span is not None:
                for buffer in mentioned(stmt) & outer:
                    spans = self.spans.setdefault(buffer, [])
                    spans += [span] if span not in spans else []
            own = (stmt.first, stmt.count) if isinstance(stmt, Group) else span
            for inner in children(stmt):
                self._count(inner, own, outer)

    def block(self, block: Block, span: Span | None) -> Block:
        """The statements of a block that a group (None: all threads) runs."""
        return tuple(new for stmt in block for new in self._stmt(stmt, span))

    def _stmt(self, stmt: Stmt, span: Span | None) -> Block:
        if isinstance(stmt, Group):
            own = (stmt.first, stmt.count)
            names = {buffer: new for (buffer, owner), new in self._own.items() if owner == own}
            return (replace(stmt, body=renamed(self.block(stmt.body, own), names)),)
        if isinstance(stmt, Alloc) and stmt.buffer in self.spans:
            copies = (self._own[stmt.buffer, span] for span in self.spans[stmt.buffer])
            return tuple(replace(stmt, buffer=copy) for copy in copies)
        inside = {name for inner in walk((stmt,)) for name in mentioned(inner)} if span is None else set()
        held = [buffer for buffer in self.spans if buffer in inside]
        if not held or any(isinstance(inner, (Group, Alloc)) for inner in walk((stmt,))):
            return (with_children(stmt, [self.block(part, span) for part in children(stmt)]),)
        return self._handed_over(stmt, held)

    def _handed_over(self, stmt: Stmt, held: list[Var]) -> Block:
        """A statement of the block as one of the groups that have its fragments."""
        spans = self.spans[held[0]]
        fills = isinstance(stmt, (Copy, Fill)) and stmt.dst.buffer in self.spans and len(held) == 1
        if any(self.spans[buffer] != spans for buffer in held) or not (len(spans) == 1 or fills):
            raise UnsupportedError(
                f"{held[0].name} belongs to groups of threads, the whole block cannot read it",
                place=place_of(stmt),
                why="every group has a fragment of its own",
                remedy="read it under T.ws, or allocate a fragment for each group",
            )
        return tuple(
            Group(
                first, count, renamed((stmt,), {b: self._own[b, (first, count)] for b in held}), loc=stmt.loc
            )
            for first, count in spans
        )


def _copy_of(buffer: Var, number: int) -> Var:
    return tirx.decl_buffer(
        buffer.shape, str(buffer.dtype), f"{buffer.name}_{number}", scope=str(buffer.scope())
    )
