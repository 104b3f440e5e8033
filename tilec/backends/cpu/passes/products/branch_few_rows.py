"""Products that turn out to have few rows when they run read their other operand where it lies.

A tile of 128 queries may have one that exists. Keys are then read once: to bring them into panels would take
longer than the product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import Matrix, MicroGemm
from tilec.backends.cpu.products.staged_operands import StagedOperands, other_axes, suits_vectors_along_k
from tilec.ir.exprs import all_of, int_value
from tilec.ir.nodes import Alloc, Block, Copy, If, Kernel, Launch, Reduce, Stmt
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class BranchFewRows(Pass):
    """In: ``MicroGemm`` behind the Copy of a ``b`` with K side by side. It clears its sums, which are reduced
    then (steps of a longer K are merged by other passes, sums that nothing reduces finished in registers).
    Out: where it is open whether rows are few and the source of ``b`` has what is read, a branch between the
    same on a tile of its own, which need not be made (`forward_operands`), and both as they were."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such products in branches."""
        return rewrite_launches(kernel, lambda launch: _Branches(kernel, launch, target).run())


class _Branches(StagedOperands):
    """Rewrites one launch. ``near`` is the block at hand, ``moved`` are the copies that branches took."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        self.target = target
        self.near: Block = ()
        self.moved: set[Copy] = set()

    def block(self, block: Block) -> Block:
        """The block without the copies that its branches took."""
        before, self.near = self.near, block
        made = super().block(block)
        self.near = before
        return tuple(stmt for stmt in made if stmt not in self.moved)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A branch in place of a product."""
        if not isinstance(stmt, MicroGemm):
            return super().stmt(stmt)
        open_conditions = self._open(stmt)
        return [self._branch(stmt, open_conditions)] if open_conditions else [stmt]

    def _open(self, gemm: MicroGemm) -> list[Expr]:
        """What is not known of the conditions under which ``b`` is read in place; nothing where that never
        pays, or does anyway."""
        moved = self.source_of(gemm.b)
        if moved is None or int_value(gemm.clear) != 1 or not self._is_own(gemm.b.region.buffer):
            return []
        if not any(isinstance(user, Reduce) for user in self.users[gemm.c.buffer]):
            return []
        conditions = [self.few_rows(gemm), *self._bounds(moved)]
        known = [cond for cond in conditions if cond is not None]
        if len(known) < len(conditions) or not suits_vectors_along_k(gemm, moved, self.target):
            return []
        return [cond for cond in known if self.facts.prove(cond) is not True]

    def _is_own(self, tile: Var) -> bool:
        """Whether a copy of this block fills ``tile`` for one product."""
        return self.sources[tile] in self.near and len(self.users[tile]) == 2

    def _bounds(self, matrix: Matrix) -> list[Expr | None]:
        """The conditions under which a matrix lies in its buffer on the axes that it does not walk; None
        where it may start below zero."""
        region = matrix.region
        return [
            region.start[axis] < region.buffer.shape[axis]
            if self.facts.prove(region.start[axis] >= 0) is True
            else None
            for axis in other_axes(matrix)
        ]

    def _branch(self, gemm: MicroGemm, conditions: list[Expr]) -> If:
        """``gemm`` and the copy of its ``b`` twice, each time on a tile of their own."""
        copy, old = self.sources[gemm.b.region.buffer], gemm.b.region
        tile = _twin(old.buffer)
        few = replace(
            gemm,
            b=replace(gemm.b, region=replace(old, buffer=tile)),
            vars=(tirx.Var("i", "int32"), tirx.Var("j", "int32")),
        )
        self.moved.add(copy)
        filled = replace(copy, dst=replace(copy.dst, buffer=tile))
        return If(all_of(conditions), (Alloc(tile), filled, few), (copy, gemm), loc=gemm.loc)


def _twin(tile: Var) -> Var:
    """Another tile of the same form."""
    return tirx.decl_buffer(tile.shape, str(tile.dtype), tile.name, scope=tile.scope())
