"""Statements over matrices, as those over the transposed ones: ``C.T = B.T @ A.T``.

Products, reductions (along the other axis), fills and loops follow; a copy of which one side alone is turned
becomes a loop. wgmma has 64 rows at least and 8 columns: few rows are many columns that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import transform
from tilec.ir.nodes import Copy, Gemm, Launch, Reduce, Region, Stmt
from tilec.ir.traits import Rewriter, buffers
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer

T = TypeVar("T")


def with_transposed(launch: Launch, fragments: Iterable[Var]) -> Launch:
    """The launch with its ``fragments``, each of a matrix, holding it transposed."""
    turned = {fragment: transposed(fragment) for fragment in fragments}
    return replace(launch, body=Turned(turned).block(launch.body))


def turned_product(stmt: Gemm) -> Gemm:
    """A product whose sums are transposed, in a fragment of its own: ``C.T = B.T @ A.T``."""
    c = _exchanged(stmt.c, transposed(stmt.c.buffer))
    return replace(stmt, a=stmt.b, b=stmt.a, c=c, trans_a=not stmt.trans_b, trans_b=not stmt.trans_a)


def transposed(matrix: Var) -> Var:
    """What holds a matrix transposed."""
    shape, strides = swapped(matrix.shape), swapped(matrix.strides) if len(matrix.strides) else None
    name, scope = str(matrix.name), matrix.scope()
    return tirx.decl_buffer(shape, str(matrix.dtype), name=name, scope=scope, strides=strides)


def _exchanged(region: Region, buffer: Var) -> Region:
    """A region of a matrix where it lies transposed, in ``buffer``."""
    return Region(buffer, swapped(region.start), swapped(region.extent))


def swapped(axes: Sequence[T]) -> tuple[T, ...]:
    """Sizes, strides or indices with those of rows and columns exchanged."""
    *lead, row, column = axes
    return (*lead, column, row)


class Turned(Rewriter):
    """Statements that have matrices transposed, in the buffers that ``turned`` gives for theirs."""

    def __init__(self, turned: Mapping[Var, Var]) -> None:
        super().__init__()
        self._turned = turned

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement and what is inside; copies of which one side alone is turned become loops."""
        if not self._names(stmt):
            return super().stmt(stmt)
        if isinstance(stmt, Gemm):
            return super().stmt(self._product(stmt))
        if isinstance(stmt, Reduce):
            return super().stmt(replace(stmt, axis=1 - stmt.axis))
        if isinstance(stmt, Copy) and not all(map(self._is_turned, buffers(stmt))):
            return super().stmt(expand_copy(stmt))
        return super().stmt(stmt)

    def _names(self, stmt: Stmt) -> bool:
        return any(map(self._is_turned, buffers(stmt)))

    def _is_turned(self, buffer: Buffer) -> bool:
        return buffer in self._turned

    def _product(self, stmt: Gemm) -> Gemm:
        """A product whose regions are turned behind this."""
        if stmt.c.buffer in self._turned:
            stmt = replace(turned_product(stmt), c=stmt.c)
        trans_a, trans_b = (
            stored != (region.buffer in self._turned)
            for region, stored in ((stmt.a, stmt.trans_a), (stmt.b, stmt.trans_b))
        )
        return replace(stmt, trans_a=trans_a, trans_b=trans_b)

    def region(self, region: Region) -> Region:
        """A region of a matrix where it lies transposed."""
        made = super().region(region)
        if region.buffer not in self._turned:
            return made
        return _exchanged(made, made.buffer)

    def expr(self, expr: Expr) -> Expr:
        """A value with its elements read at their transposed places."""
        return transform(expr, self._element_read)

    def _element_read(self, node: Expr) -> Expr | None:
        if not isinstance(node, TensorLoad) or node.source not in self._turned:
            return None
        indices = swapped([*map(self.expr, node.indices)])
        return tirx.BufferLoad(self._turned[node.source], list(indices))

    def element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        """An element that a statement names, at its transposed place."""
        return (self._turned[buffer], swapped(indices)) if buffer in self._turned else (buffer, indices)

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer that holds a matrix transposed."""
        return self._turned.get(buffer, buffer)

    def defined(self, var: Var) -> Var:
        """As the statements that name it."""
        return self.buffer(var)
