"""Tiles that live inside one iteration become variables of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Parallel, Stmt, Store, children, walk
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import Access, accesses, long_vars, share_elements, updates_atomically
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.passes.base import Pass, replaced, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import map_block, read_from

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class PrivatiseTiles(Pass):
    """In: Parallel loops over tiles. Out: a tile that one loop alone touches, whose every iteration writes
    its own element before it reads it, is a local.var of the iteration: a register, and no memory at all."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles replaced."""
        return rewrite_launches(kernel, lambda launch: _privatise(kernel, launch))


def _privatise(kernel: Kernel, launch: Launch) -> Launch:
    for alloc in [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.init is None]:
        loop = only_user(launch.body, alloc.buffer)
        if loop is not None and _is_private(kernel, loop, alloc.buffer):
            launch = replace(launch, body=_inside(launch.body, alloc, loop))
    return launch


def only_user(body: Block, buffer: Var) -> Parallel | None:
    """The outermost Parallel that holds every use of ``buffer``; None if some use is elsewhere."""
    users = [stmt for stmt in _outer(body) if _touches(stmt, buffer)]
    return users[0] if len(users) == 1 and isinstance(users[0], Parallel) else None


def _outer(block: Block) -> list[Stmt]:
    """The statements that are in no Parallel, allocations left out."""
    found: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Parallel):
            found.append(stmt)
            continue
        found += [] if isinstance(stmt, Alloc) else [stmt]
        found += [inner for part in children(stmt) for inner in _outer(part)]
    return found


def _touches(stmt: Stmt, buffer: Var) -> bool:
    inside = walk((stmt,)) if isinstance(stmt, Parallel) else (stmt,)
    return any(used.same_as(buffer) for inner in inside for used in buffers(inner))


def _is_private(kernel: Kernel, loop: Parallel, buffer: Var) -> bool:
    if updates_atomically(loop.body, buffer):
        return False
    touching = [item for item in accesses(loop.body) if item.buffer.same_as(buffer)]
    if not is_written_first(loop.body, buffer) or not share_elements(touching, long_vars(loop)):
        return False
    return all(are_inside(kernel, loop, touching, axis) for axis in range(len(buffer.shape)))


def are_inside(kernel: Kernel, loop: Parallel, touching: Sequence[Access], axis: int) -> bool:
    """Whether the indices on ``axis`` of all accesses to one buffer exist in every iteration of ``loop``.
    What is written outside is lost, where a register would keep it."""
    facts = Facts(kernel)
    for var, extent in zip(loop.vars, loop.extents, strict=True):
        facts.bind_range(var, 0, extent)
    size = touching[0].buffer.shape[axis]
    indices = [item.indices[axis] for item in touching]
    return all(facts.prove(tirx.And(index >= 0, index < size)) is True for index in indices)


def is_written_first(body: Block, buffer: Var) -> bool:
    """Whether the first statement that names ``buffer`` writes it in every iteration."""
    for stmt in body:
        if any(used.same_as(buffer) for inner in walk((stmt,)) for used in buffers(inner)):
            first = accesses((stmt,))
            reads = any(item.buffer.same_as(buffer) and not item.is_write for item in first)
            return isinstance(stmt, Store) and not reads
    return False


def _inside(body: Block, alloc: Alloc, loop: Parallel) -> Block:
    old = alloc.buffer
    new = tirx.decl_buffer((1,), str(old.dtype), str(old.name), scope="local.var")
    zero = (tirx.const(0, "int32"),)

    def place(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Store) or not stmt.buffer.same_as(old):
            return stmt
        return replace(stmt, buffer=new, indices=zero)

    stored = rewrite_blocks(loop.body, lambda block: [place(stmt) for stmt in block])
    inner = map_block(stored, lambda expr: read_from(expr, old, new, zero))
    private = replace(loop, body=(Alloc(new, loc=alloc.loc), *inner))
    return replaced(body, {alloc: (), loop: (private,)})
