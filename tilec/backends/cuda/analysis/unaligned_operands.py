"""Operands of products that blocks share, in rows that TMA cannot take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.tma import MOST_AXES, element_strides, has_aligned_rows
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads
from tilec.ir.nodes import Alloc, Copy, Gemm, Kernel, Launch, Stmt, TensorParam, children, walk
from tilec.ir.traits import expressions, written
from tilec.lowering.analysis.scopes import ScopedRewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

#: Blocks for which an operand is not copied: it may take longer than they do (H200, 16 x 50257 x 4096 in
#: float16, one block of rows: 279 us, 438 with the copy; 16 x 4095 x 4095, which L2 holds: 99 and 50).
_FEW = 2


def unaligned_operands(kernel: Kernel, launch: Launch) -> list[Var]:
    """The tensors from which a launch copies operands of products, of which rows are not known to be aligned
    and elements not known to be those of few blocks, unless `align` asks for all or for none."""
    return [] if launch.schedule.align is False else _Operands(kernel, launch).found


class _Operands(ScopedRewrite):
    """Walks a launch; nothing is rewritten."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.found: list[Var] = []
        tensors = {param.buffer for param in kernel.params if isinstance(param, TensorParam)}
        tensors |= {stmt.buffer for stmt in kernel.body if isinstance(stmt, Alloc)}
        self._sources = tensors - {buffer for stmt in walk(launch.body) for buffer in written(stmt)}
        gemms = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
        self._operands = {region.buffer for gemm in gemms for region in (gemm.a, gemm.b)}
        if gemms and not named(launch):
            self.block(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Trips and branches that elements of tensors decide may read a small part of an operand: they are
        left alone."""
        if children(stmt) and self._looks_up(list(expressions(stmt))):
            return [stmt]
        if isinstance(stmt, Copy) and stmt.src.buffer not in self.found and self._is_unaligned(stmt):
            self.found.append(stmt.src.buffer)
        return super().stmt(stmt)

    def _looks_up(self, values: Sequence[Expr]) -> bool:
        return any(True for value in values for _ in loads(self.facts.inline(value)))

    def _is_unaligned(self, copy: Copy) -> bool:
        source = copy.src.buffer
        if source not in self._sources or copy.dst.buffer not in self._operands or copy.hints.avoids_tma:
            return False
        if not 2 <= len(source.shape) <= MOST_AXES or int_value(element_strides(source)[-1]) != 1:
            return False
        if has_aligned_rows(source, self.facts) or self._looks_up(copy.src.start):
            return False
        return bool(self.launch.schedule.align) or not self._is_of_few_blocks(copy)

    def _is_of_few_blocks(self, copy: Copy) -> bool:
        """Whether every axis of the grid that has many blocks moves the first element."""
        start = [self.facts.inline(index) for index in copy.src.start]
        return all(
            self.facts.prove(extent <= tirx.const(_FEW, dtype_of(var))) is True
            or any(_moves(index, var) for index in start)
            for var, extent in zip(self.launch.block_vars, self.launch.grid, strict=True)
        )


def _moves(index: Expr, var: Var) -> bool:
    """Whether an index is a multiple of a variable plus something else."""
    linear = linear_in(index, [var])
    return bool(linear) and int_value(linear[0]) not in (None, 0)
