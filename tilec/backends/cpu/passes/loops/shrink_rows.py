"""Tiles of which only the current row is ever needed hold one row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.passes.loops.fuse_rows import row_axis
from tilec.backends.cpu.passes.loops.privatise_tiles import are_inside, only_user
from tilec.ir.exprs import int_value, transform
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Parallel, Stmt, Store, walk
from tilec.lowering.analysis.accesses import accesses, updates_atomically
from tilec.lowering.passes.base import Pass, replaced, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class ShrinkRows(Pass):
    """In: Parallel loops over rows with the columns inside. Out: a tile that one such loop alone touches, in
    each iteration its own row, written before it is read, has one row."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tiles shrunk."""
        return rewrite_launches(kernel, lambda launch: _shrink(kernel, launch))


def _shrink(kernel: Kernel, launch: Launch) -> Launch:
    for alloc in [stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc) and stmt.init is None]:
        loop = only_user(launch.body, alloc.buffer)
        axis = _own_axis(kernel, loop, alloc.buffer) if loop is not None else None
        if loop is not None and axis is not None:
            launch = replace(launch, body=_shrunk(launch.body, alloc, loop, axis))
    return launch


def _own_axis(kernel: Kernel, loop: Parallel, buffer: Var) -> int | None:
    """The axis of ``buffer`` that is the row of ``loop``; None where the tile is needed beyond one row."""
    inner = [stmt for stmt in loop.body if isinstance(stmt, Parallel)]
    if len(loop.vars) != 1 or not inner or int_value(buffer.shape[0]) == 1:
        return None
    if updates_atomically(loop.body, buffer):
        return None
    items = [item for item in accesses(loop.body) if item.buffer.same_as(buffer)]
    counted = tuple(var for stmt in inner for var in stmt.vars)
    axis = row_axis(items, loop.vars[0], counted)
    if axis is None or not _is_filled_first(loop, buffer, axis):
        return None
    return axis if are_inside(kernel, loop, items, axis) else None


def _is_filled_first(loop: Parallel, buffer: Var, axis: int) -> bool:
    """Whether the first statement of an iteration that names ``buffer`` writes the whole row."""
    for stmt in loop.body:
        items = [item for item in accesses((stmt,)) if item.buffer.same_as(buffer)]
        if items:
            return items[0].is_write and _fills(stmt, buffer, axis)
    return False


def _fills(stmt: Stmt, buffer: Var, axis: int) -> bool:
    """Whether ``stmt`` unconditionally stores every element of a row of ``buffer``."""
    rest = [position for position in range(len(buffer.shape)) if position != axis]
    if isinstance(stmt, Store):
        return all(int_value(buffer.shape[position]) == 1 for position in rest)
    if not isinstance(stmt, Parallel) or len(rest) != len(stmt.vars):
        return False
    stores = [inner for inner in stmt.body if isinstance(inner, Store) and inner.buffer.same_as(buffer)]
    return bool(stores) and all(
        stores[0].indices[position].same_as(var) and int_value(extent) == int_value(buffer.shape[position])
        for position, var, extent in zip(rest, stmt.vars, stmt.extents, strict=True)
    )


def _shrunk(body: Block, alloc: Alloc, loop: Parallel, axis: int) -> Block:
    old = alloc.buffer
    shape = [1 if position == axis else extent for position, extent in enumerate(old.shape)]
    new = tirx.decl_buffer(shape, str(old.dtype), str(old.name), scope=old.scope())

    def first_row(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*indices[:axis], tirx.const(0, "int32"), *indices[axis + 1 :])

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or not node.source.same_as(old):
            return None
        indices = tuple(transform(index, visit) for index in node.indices)
        return tirx.BufferLoad(new, list(first_row(indices)))

    def place(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Store) or not stmt.buffer.same_as(old):
            return stmt
        return replace(stmt, buffer=new, indices=first_row(stmt.indices))

    stored = rewrite_blocks(loop.body, lambda block: [place(stmt) for stmt in block])
    inner = map_block(stored, lambda expr: transform(expr, visit))
    return replaced(body, {alloc: (replace(alloc, buffer=new),), loop: (replace(loop, body=inner),)})
