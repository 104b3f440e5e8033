"""Threads that have ended, or that only fill up a warp, go along with the others to where these meet.

A barrier counts warps and a shuffle joins all lanes, so on a GPU every thread of a block has to come to them.
What a `Rest` holds therefore runs in all threads where they meet in it, and the threads that have ended do
nothing that others could see: no store to memory of the block, no vote, no number in a sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.ir.analysis.jumps import jumps
from tilec.ir.analysis.threads.groups import ThreadSets, is_collective, meets
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import all_of, dtype_of, loads
from tilec.ir.nodes import (
    COLLECTIVE,
    LOOPS,
    Alloc,
    Atomic,
    Bind,
    Block,
    Break,
    Continue,
    If,
    Launch,
    Rest,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import BLOCK_VOTES, PER_THREAD, SHUFFLES, Lane, Sync, ThreadReduce
from tilec.lowering.analysis.accesses import accesses, own_accesses

if TYPE_CHECKING:
    from tvm.ir import Expr

_CONTROL = (If, *LOOPS)
#: What changes no result of a reduction over a warp, by kind; the others have the ends of the type.
_NOTHING = {"warp_sum": 0, "warp_bitor": 0, "warp_bitand": -1}


def going_along(launch: Launch, thread: Expr) -> Block:
    """The body of ``launch`` with every `Rest` in which threads meet spelled out; ``thread`` is the number of
    a thread in its block."""
    flat = replace(launch, body=_flattened(launch.body))
    return _Pushed(launch, Uniformity(flat), thread).block(launch.body, None)


def _flattened(block: Block) -> Block:
    """``block`` with what stands in a `Rest` in its place: what the threads that are left see."""
    found: list[Stmt] = []
    for stmt in block:
        inner = with_children(stmt, [_flattened(part) for part in children(stmt)])
        found += inner.then if isinstance(inner, Rest) else (inner,)
    return tuple(found)


def _needs_all(block: Block) -> bool:
    """Whether threads meet in a block, or may have to: where one touches what another writes."""
    exchanged = any(isinstance(stmt, (Lane, ThreadReduce)) for stmt in walk(block))
    return exchanged or is_collective(block) or meets(block) or _touches_again(block)


def _touches_again(block: Block) -> bool:
    """Whether memory that all threads see is written in a loop, or written and touched by another statement
    of the block."""
    writes, touched = Counter[Var](), Counter[Var]()
    for stmt in walk(block):
        items = own_accesses(stmt)
        writes.update({item.buffer for item in items if item.is_write})
        touched.update({item.buffer for item in items})
    loops = tuple(stmt for stmt in walk(block) if isinstance(stmt, LOOPS))
    looped = {item.buffer for item in accesses(loops) if item.is_write}
    return any(
        buffer.scope() not in PER_THREAD and (buffer in looped or touched[buffer] > 1) for buffer in writes
    )


class _Pushed:
    """Rewrites one launch. ``alive`` is the name of the condition that holds in threads that have not
    ended; None where all are there."""

    def __init__(self, launch: Launch, uniform: Uniformity, thread: Expr) -> None:
        self._uniform, self._thread = uniform, thread
        self._sets = ThreadSets(launch)
        x, y, z = launch.threads
        self._count = x * y * z
        for stmt in walk(launch.body):
            if isinstance(stmt, Bind):
                self._sets.learn(stmt)

    def block(self, block: Block, alive: Var | None) -> Block:
        """The statements of a block."""
        return tuple(new for stmt in block for new in self._stmt(stmt, alive))

    def _stmt(self, stmt: Stmt, alive: Var | None) -> Block:
        if isinstance(stmt, Rest):
            return self._rest(stmt, alive)
        if alive is None or isinstance(stmt, Group):
            return (with_children(stmt, [self.block(part, alive) for part in children(stmt)]),)
        if isinstance(stmt, _CONTROL):
            return self._control(stmt, alive)
        return self._leaf(stmt, alive)

    def _rest(self, stmt: Rest, alive: Var | None) -> Block:
        if not self._uniform.varies(stmt.cond):
            return (replace(stmt, then=self.block(stmt.then, alive)),)
        if not _needs_all(stmt.then):
            return (stmt,) if alive is None else (If(alive, (stmt,), loc=stmt.loc),)
        own = tirx.Var("alive", "bool")
        bind = Bind(own, stmt.cond if alive is None else all_of([alive, stmt.cond]), loc=stmt.loc)
        inner = self.block(stmt.then, own)
        if not is_collective(stmt.then) or self._some_are_left(stmt.cond):
            return bind, *inner
        any_left = tirx.Var("any_left", "int32")
        vote = Lane("block_or", any_left, (own,), loc=stmt.loc)
        return bind, vote, If(tirx.NE(any_left, tirx.const(0, "int32")), inner, loc=stmt.loc)

    def _some_are_left(self, cond: Expr) -> bool:
        return self._sets.knows(cond) and bool(self._sets.holds(cond).any())

    def _control(self, stmt: Stmt, alive: Var) -> Block:
        """A branch or a loop: all threads run it where they meet in it, where it changes what they all know,
        or where it leaves a loop that they run."""
        inside = tuple(part for block in children(stmt) for part in block)
        leaves = next(jumps(stmt), None) is not None
        if self._uniform.parts(stmt) or not (leaves or _needs_all((stmt,)) or self._is_common(inside)):
            return (If(alive, (stmt,), loc=stmt.loc),)
        return (with_children(stmt, [self.block(part, alive) for part in children(stmt)]),)

    def _is_common(self, block: Block) -> bool:
        """Whether a block stores what is the same in all threads to their own storage."""
        stores = [stmt for stmt in walk(block) if isinstance(stmt, Store)]
        return any(stmt.buffer.scope() in PER_THREAD and not self._varies(stmt) for stmt in stores)

    def _varies(self, stmt: Store) -> bool:
        return stmt.buffer in self._uniform.varying or self._uniform.varies(stmt.value, *stmt.indices)

    def _leaf(self, stmt: Stmt, alive: Var) -> Block:
        if isinstance(stmt, (Alloc, Break, Continue, *COLLECTIVE)):
            return (stmt,)
        if isinstance(stmt, Bind):
            return (self._bound(stmt, alive),)
        if isinstance(stmt, Store) and stmt.buffer.scope() in PER_THREAD and not self._varies(stmt):
            return (stmt,)
        if isinstance(stmt, Sync) and (stmt.count is None or stmt.count == self._count):
            return (stmt,)
        if isinstance(stmt, ThreadReduce):
            return (replace(stmt, cond=all_of([alive, stmt.cond])),)
        if isinstance(stmt, Lane):
            return _joined(stmt, self._taking_part(stmt, alive))
        if isinstance(stmt, Atomic) and stmt.prev is not None:
            return _updated(stmt, stmt.prev, alive)
        return (If(alive, (stmt,), loc=stmt.loc),)

    def _bound(self, stmt: Bind, alive: Var) -> Bind:
        """A name: threads that have ended read nothing that is theirs alone."""
        reads = any(load.source.scope() not in PER_THREAD for load in loads(stmt.value))
        if not reads or not self._uniform.varies(stmt.value):
            return stmt
        zero = tirx.const(0, dtype_of(stmt.value))
        return replace(stmt, value=tirx.if_then_else(alive, stmt.value, zero))

    def _taking_part(self, stmt: Lane, alive: Var) -> Expr:
        """In which threads a statement counts: those that are left and that its mask names."""
        if stmt.mask is None:
            return alive
        lane = tirx.Cast("uint32", tirx.truncmod(self._thread, tirx.const(WARP, "int32")))
        bit = tirx.bitwise_and(tirx.shift_right(stmt.mask, lane), tirx.const(1, "uint32"))
        return all_of([alive, tirx.NE(bit, tirx.const(0, "uint32"))])


# ---- what threads tell each other ----


def _updated(stmt: Atomic, prev: Var, alive: Var) -> Block:
    """An atomic update whose old value has a name."""
    dtype = dtype_of(prev)
    held = tirx.decl_buffer((1,), dtype, f"{prev.name}_held", scope="local.var")
    own, first = tirx.Var(str(prev.name), dtype), (tirx.const(0, "int32"),)
    inner = (replace(stmt, prev=own), Store(held, first, own, loc=stmt.loc))
    value = Bind(prev, tirx.BufferLoad(held, list(first)), loc=stmt.loc)
    return Alloc(held, loc=stmt.loc), If(alive, inner, loc=stmt.loc), value


def _joined(stmt: Lane, takes: Expr) -> Block:
    """A shuffle or a vote of all lanes in which those count for which ``takes`` holds."""
    stmt = replace(stmt, mask=None)
    if stmt.kind in SHUFFLES:
        return _shuffled(stmt, takes)
    if stmt.kind in ("match_any", "match_all"):
        return _matched(stmt, takes)
    if stmt.kind == "active":
        return (replace(stmt, kind="ballot", operands=(takes,)),)
    (value,) = stmt.operands
    if stmt.kind in ("all", "block_and"):
        return (replace(stmt, operands=(tirx.Or(tirx.Not(takes), value),)),)
    if stmt.kind in ("any", "ballot", *BLOCK_VOTES):
        return (replace(stmt, operands=(all_of([takes, value]),)),)
    return (replace(stmt, operands=(tirx.Select(takes, value, _nothing(stmt.kind, dtype_of(value))),)),)


def _nothing(kind: str, dtype: str) -> Expr:
    if kind in _NOTHING:
        return tirx.Cast(dtype, tirx.const(_NOTHING[kind], "int32"))
    return tirx.min_value(dtype) if kind == "warp_max" else tirx.max_value(dtype)


def _shuffled(stmt: Lane, takes: Expr) -> Block:
    """A lane that does not take part gives a thread its own value."""
    value, lane = stmt.operands
    own, found = (tirx.Var(f"{stmt.var.name}_{what}", dtype_of(value)) for what in ("own", "found"))
    there = tirx.Var(f"{stmt.var.name}_there", "int32")
    chosen = tirx.Select(tirx.NE(there, tirx.const(0, "int32")), found, own)
    return (
        Bind(own, value, loc=stmt.loc),
        replace(stmt, var=found, operands=(own, lane)),
        replace(stmt, var=there, operands=(tirx.Cast("int32", takes), lane)),
        Bind(stmt.var, chosen, loc=stmt.loc),
    )


def _matched(stmt: Lane, takes: Expr) -> Block:
    """The lanes that take part and have the value; for "match_all" all that do, or none."""
    dtype = dtype_of(stmt.var)
    like, left = tirx.Var("like", dtype), tirx.Var("left", "uint64")
    there = tirx.Cast(dtype, left)
    value: Expr = tirx.bitwise_and(like, there)
    if stmt.kind == "match_all":
        value = tirx.Select(tirx.EQ(value, there), there, tirx.const(0, dtype))
    return (
        replace(stmt, kind="match_any", var=like),
        Lane("ballot", left, (takes,), loc=stmt.loc),
        Bind(stmt.var, value, loc=stmt.loc),
    )
