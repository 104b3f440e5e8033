"""Products touch nothing outside of their tiles, wherever run-time offsets lead.

    gemm(a[0:+32, q:+8], b, c)    ->    copy(a[0:+32, q:+8], part); gemm(part, b, c)        (q: any number)

A copy has zeros for what lies outside; a product would read whatever is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import int_value, same_number
from tilec.ir.nodes import PRODUCTS, Alloc, Copy, Gemm, Kernel, Region, ScaledGemm, SparseGemm, Stmt
from tilec.lowering.analysis.added_sums import where_added
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


class BoundProducts(Pass):
    """In: products on any regions. Out: products on regions that are known to lie inside of their buffers. A
    region that may not is copied to a tile of its own, which holds 0 for what is outside; a result is copied
    back as far as there is room for it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its products inside their tiles."""
        return rewrite_launches(kernel, lambda launch: _Bounds(kernel, launch).run())


class _Bounds(ScopedRewrite):
    """Rewrites the products of one launch."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A product becomes copies around one."""
        if not isinstance(stmt, PRODUCTS):
            return super().stmt(stmt)
        before: list[Stmt] = []
        after: list[Stmt] = []
        a, b = (self._operand(region, stmt, before) for region in (stmt.a, stmt.b))
        if isinstance(stmt, SparseGemm):
            stmt = replace(stmt, e=self._operand(stmt.e, stmt, before))
        if isinstance(stmt, ScaledGemm):
            sfa, sfb = (self._operand(region, stmt, before) for region in (stmt.sfa, stmt.sfb))
            stmt = replace(stmt, sfa=sfa, sfb=sfb)
        c = self._result(stmt, before, after)
        return [*before, replace(stmt, a=a, b=b, c=c), *after]

    def _operand(self, region: Region, gemm: Stmt, before: list[Stmt]) -> Region:
        if is_inside(region, self.facts):
            return region
        tile = _own_tile(region, "shared.dyn")
        before += [Alloc(tile.buffer, loc=gemm.loc), Copy(region, tile, loc=gemm.loc)]
        return tile

    def _result(self, gemm: Gemm | SparseGemm | ScaledGemm, before: list[Stmt], after: list[Stmt]) -> Region:
        if is_inside(gemm.c, self.facts):
            return gemm.c
        tile = _own_tile(gemm.c, gemm.c.buffer.scope())
        read = Copy(gemm.c, tile, loc=gemm.loc)
        before += [Alloc(tile.buffer, loc=gemm.loc), *where_added(gemm, (read,))]
        after.append(Copy(tile, gemm.c, loc=gemm.loc))
        return tile


def is_inside(region: Region, facts: Facts) -> bool:
    """Whether all of a region is known to lie inside of its buffer."""
    axes = zip(region.start, region.extent, region.buffer.shape, strict=True)
    return all(_fits(start, extent, size, facts) for start, extent, size in axes)


def _fits(start: Expr, extent: int | Expr, size: Expr, facts: Facts) -> bool:
    if int_value(start) == 0 and same_number(extent, size):
        return True
    return facts.prove(start >= 0) is True and facts.prove(start + extent <= size) is True


def _own_tile(region: Region, scope: str) -> Region:
    """A tile for the elements of a region; a run-time extent counts as the whole dimension."""
    pairs = zip(region.extent, region.buffer.shape, strict=True)
    shape = tuple(size if int_value(extent) is None else int_value(extent) for extent, size in pairs)
    name = f"{region.buffer.name}_part"
    tile = tirx.decl_buffer(shape, str(region.buffer.dtype), name=name, scope=scope)
    return Region(tile, (tirx.const(0, "int32"),) * len(shape), region.extent)
