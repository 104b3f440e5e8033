"""Operands of products that blocks share, and what operands are made of, in rows that TMA cannot take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.tma import MOST_AXES, STRIDE_BYTES, element_strides, has_aligned_rows
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import dtype_of, int_value, linear_in, loads
from tilec.ir.nodes import Alloc, Copy, Gemm, Kernel, Launch, Parallel, Stmt, TensorParam, children, walk
from tilec.ir.traits import expressions, read, written
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

#: Blocks for which an operand is not copied: it may take longer than they do (H200, 16 x 50257 x 4096 in
#: float16, one block of rows: 279 us, 438 with the copy; 16 x 4095 x 4095, which L2 holds: 99 and 50).
_FEW = 2


def unaligned_operands(kernel: Kernel, launch: Launch) -> list[Var]:
    """The tensors from which a launch copies operands of products, or what loops make operands of, of which
    rows are not known to be aligned and elements not known to be those of few blocks, unless `align` asks for
    all or for none."""
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
        self._parts = _parts_of(launch, self._operands)
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
        if source not in self._sources or copy.hints.avoids_tma or not self._is_for_products(copy):
            return False
        if not 2 <= len(source.shape) <= MOST_AXES or int_value(element_strides(source)[-1]) != 1:
            return False
        if has_aligned_rows(source, self.facts) or self._looks_up(copy.src.start):
            return False
        return bool(self.launch.schedule.align) or not self._is_of_few_blocks(copy)

    def _is_for_products(self, copy: Copy) -> bool:
        """Whether it fills an operand, or whole vectors of what loops make one of."""
        if copy.dst.buffer in self._operands:
            return True
        size = (int_value(copy.src.extent[-1]) or 0) * _bytes(copy.src.buffer)
        return copy.dst.buffer in self._parts and size > 0 and size % STRIDE_BYTES == 0

    def _is_of_few_blocks(self, copy: Copy) -> bool:
        """Whether every axis of the grid that has many blocks moves the first element."""
        start = [self.facts.inline(index) for index in copy.src.start]
        return all(
            self.facts.prove(extent <= tirx.const(_FEW, dtype_of(var))) is True
            or any(_moves(index, var) for index in start)
            for var, extent in zip(self.launch.block_vars, self.launch.grid, strict=True)
        )


def _parts_of(launch: Launch, operands: set[Var]) -> set[Var]:
    """What loops make operands of that are wider: packed weights, with their scales."""
    found: set[Var] = set()
    for loop in (stmt for stmt in walk(launch.body) if isinstance(stmt, Parallel)):
        sources = {buffer for stmt in walk(loop.body) for buffer in read(stmt)}
        made = {buffer for stmt in walk(loop.body) for buffer in written(stmt)} & operands
        if any(_bytes(source) < _bytes(operand) for source in sources for operand in made):
            found |= sources
    return found


def _bytes(buffer: Var) -> int:
    return element_bytes(str(buffer.dtype))


def _moves(index: Expr, var: Var) -> bool:
    """Whether an index is a multiple of a variable plus something else."""
    linear = linear_in(index, [var])
    return bool(linear) and int_value(linear[0]) not in (None, 0)
