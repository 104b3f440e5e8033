"""Long rows that a tile only holds are read where they lie.

x = alloc(float32, (1, 8192), "local.fragment")
copy(X[b:+1, 0:+8192], x[0:+1, 0:+8192])
for j in parallel(8192): s[0] = s[0] + x[0, j]
for j in parallel(8192): Y[b, j] = x[0, j] * w[0]
->
for j in parallel(8192): s[0] = s[0] + X[b, j]
for j in parallel(8192): Y[b, j] = X[b, j] * w[0]

A tile as large as the row takes half of the caches that hold it otherwise, and is written first. Rows that
registers have room for stay copied: their loops are written out, and have them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.products.staged_operands import (
    StagedOperands,
    axis_pairs,
    of_one_type,
    without_unread,
)
from tilec.ir.exprs import cast_to, dtype_of, int_value, transform, uses
from tilec.ir.nodes import Bind, Copy, For, If, Parallel, Pipelined, Stmt, Store, While
from tilec.ir.traits import loads_of, written
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.emission.access import exists
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.bound_products import is_inside
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Kernel, Launch
    from tilec.targets import Target


class ReadInPlace(Pass):
    """In: Copy, and loops of Store. Out: tiles that one Copy fills with what lies in one piece of a tensor,
    in rows of more than all vector registers, are gone; loops that read each element once read that."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without such tiles."""
        return rewrite_launches(kernel, lambda launch: _InPlace(kernel, launch, target).result())


class _InPlace(StagedOperands):
    """Looks at one launch, then rewrites it. ``loops`` are the variables of the loops around the statement at
    hand, None of one that has none; ``copies`` fill tiles, each with how many loops are around it; ``kept``
    are tiles that stay."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        self.room = target.vector_registers * target.vector_bits // 8
        self.loops: list[Var | None] = []
        self.copies: dict[Var, tuple[Copy, int]] = {}
        self.kept: set[Var] = addressed_in(launch.body)

    def result(self) -> Launch:
        """The launch with elements read in place, then without the tiles."""
        self.block(self.launch.body)
        if not self.copies.keys() - self.kept:
            return self.launch
        body = map_block(self.launch.body, lambda expr: transform(expr, self._in_place))
        return self.launch_with(without_unread(body))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Finds the tiles that stay."""
        self.kept |= {load.source for load in loads_of(stmt) if not self._once(load)}
        depth = len(self.loops)
        self.loops += _loop_vars(stmt)
        result = super().stmt(stmt)
        del self.loops[depth:]
        if isinstance(stmt, Copy) and self.sources.get(stmt.dst.buffer) is stmt and self._suits(stmt):
            self.copies[stmt.dst.buffer] = stmt, depth
        return result

    def reads(self, user: Stmt, tile: Var) -> bool:
        """Whether a statement reads elements of ``tile``, and does nothing else to it."""
        return isinstance(user, (Bind, If, Store)) and tile not in written(user)

    def _suits(self, copy: Copy) -> bool:
        """Whether a copy brings rows that registers do not hold, which lie in one piece in the tensor, as
        they are."""
        row = static(copy.dst.extent[-1]) * element_bytes(str(copy.dst.buffer.dtype))
        if row <= self.room or not _is_one_piece(copy):
            return False
        return of_one_type(copy.src.buffer, copy.dst.buffer) and is_inside(copy.src, self.facts)

    def _once(self, load: TensorLoad) -> bool:
        """Whether what is read is an element that a copy has brought, and in none of the loops behind that
        copy again."""
        tile = load.source
        if tile not in self.sources or tile not in self.copies:
            return False
        _, depth = self.copies[tile]
        moves = (
            var is not None and any(uses(index, (var,)) for index in load.indices)
            for var in self.loops[depth:]
        )
        return all(moves) and exists(load, self.facts)

    def _in_place(self, node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or node.source in self.kept or node.source not in self.copies:
            return None
        copy, _ = self.copies[node.source]
        indices = list(copy.src.start)
        for axis, other in (axis_pairs(copy) or {}).items():
            indices[other] = indices[other] + cast_to(node.indices[axis], dtype_of(indices[other]))
        return tirx.BufferLoad(copy.src.buffer, indices)


def _loop_vars(stmt: Stmt) -> list[Var | None]:
    if isinstance(stmt, Parallel):
        pairs = zip(stmt.vars, stmt.extents, strict=True)
        return [var for var, extent in pairs if int_value(extent) != 1]
    if isinstance(stmt, (For, Pipelined)):
        return [stmt.var]
    return [None] if isinstance(stmt, While) else []


def _is_one_piece(copy: Copy) -> bool:
    """Whether the elements that a copy brings follow each other in the tensor as they do in the tile."""
    source = copy.src
    if len(source.buffer.strides) or axis_pairs(copy) is None:
        return False
    sizes = [
        (int_value(extent), int_value(size))
        for extent, size in zip(source.extent, source.buffer.shape, strict=True)
    ]
    long = [axis for axis, (extent, _) in enumerate(sizes) if extent != 1]
    return all(extent is not None and extent == size for extent, size in sizes[min(long, default=0) + 1 :])
