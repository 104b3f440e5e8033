"""Adjacent Parallel loops over the same iterations run as one."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Alloc, Bind, Block, Parallel, Stmt, Store
from tilec.lowering.analysis.accesses import (
    accesses,
    commute,
    conflicts,
    long_vars,
    same_extents,
    share_elements,
)
from tilec.lowering.analysis.continues import without_continue
from tilec.lowering.passes.base import BlockPass
from tilec.lowering.rewrite import rename

#: What a loop may be moved past on its way to another one.
_MOVABLE = (Parallel, Alloc, Bind, Store)


class FuseElementwise(BlockPass):
    """In: Parallel loops. Out: loops of equal extents in one block that have a buffer in common are one loop
    where every element that both touch and one writes is the iteration's own, so that each iteration finds
    what it found before; axes of one iteration, which copies leave out, make no difference. What stands
    between them is moved before the first or after the second where it has nothing to do with it."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with loops fused."""
        done: list[Stmt] = []
        for stmt in block:
            done = _with_loop(done, stmt) if isinstance(stmt, Parallel) else [*done, stmt]
        return done


def _with_loop(done: list[Stmt], loop: Parallel) -> list[Stmt]:
    """``done`` with ``loop`` fused into its partners, from the last one on."""
    fused = _fuse_backwards(done, loop)
    if fused is None:
        return [*done, loop]
    known = set(done)
    (place,) = (position for position, stmt in enumerate(fused) if stmt not in known)
    made = fused[place]
    assert isinstance(made, Parallel)
    return [*_with_loop(fused[:place], made), *fused[place + 1 :]]


def _fuse_backwards(done: list[Stmt], loop: Parallel) -> list[Stmt] | None:
    """``done`` with ``loop`` fused into its last possible partner; None without one."""
    for position in range(len(done) - 1, -1, -1):
        earlier, between = done[position], done[position + 1 :]
        if not isinstance(earlier, _MOVABLE):
            return None
        if not isinstance(earlier, Parallel):
            continue
        first, second = _in_as_many_axes(earlier, loop)
        if not _can_fuse(first, second):
            continue
        head, fused = done[:position], fuse(first, second)
        if all(commute(stmt, loop) for stmt in between):
            return [*head, fused, *between]
        if all(commute(earlier, stmt) for stmt in between):
            return [*head, *between, fused]
    return None


def _in_as_many_axes(first: Parallel, second: Parallel) -> tuple[Parallel, Parallel]:
    """Both loops, without axes of one iteration where one has more axes: a copy has none of these."""
    if len(first.vars) == len(second.vars):
        return first, second
    return _without_short_axes(first), _without_short_axes(second)


def _without_short_axes(loop: Parallel) -> Parallel:
    kept = long_vars(loop)
    if not kept:
        return loop
    zeros = {var: tirx.const(0, dtype_of(var)) for var in loop.vars if var not in kept}
    extents = tuple(extent for extent in loop.extents if int_value(extent) != 1)
    body = rename(loop.body, zeros)
    return replace(loop, vars=kept, extents=extents, body=body)


def _can_fuse(first: Parallel, second: Parallel) -> bool:
    if not same_extents(first, second):
        return False
    if any(dtype_of(a) != dtype_of(b) for a, b in zip(first.vars, second.vars, strict=True)):
        return False
    renamed = rename(second.body, dict(zip(second.vars, first.vars, strict=True)))
    mine, theirs = accesses(first.body), accesses(renamed)
    if not {item.buffer for item in mine} & {item.buffer for item in theirs}:
        return False
    for buffer in conflicts(mine, theirs):
        touching = [item for item in (*mine, *theirs) if item.buffer.same_as(buffer)]
        if not share_elements(touching, long_vars(first)):
            return False
    return True


def fuse(first: Parallel, second: Parallel) -> Parallel:
    """One loop that does what both do."""
    renamed = rename(second.body, dict(zip(second.vars, first.vars, strict=True)))
    return replace(first, body=(*without_continue(first.body), *without_continue(renamed)))
