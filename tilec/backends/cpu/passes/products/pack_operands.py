"""Operands that stay on chip get the form that microkernels read: ``b`` in panels, both in the type computed
in; products that read ``a`` by bands get the tile for these.

A tile that one Copy fills and only products read is filled in that form at once. Any other is brought into it
right before the product; rows that it reads in place where their distance allows are copied for others
alone. What takes vectors apart reads the source itself where the whole tile lies inside,
which is tested at run time where it is not known; else the tile, which has zeros outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cpu.nodes import Matrix, MicroGemm
from tilec.backends.cpu.products.blocks.bands import band_of, has_bands
from tilec.backends.cpu.products.forms.dot_forms import DOT_FORMS
from tilec.backends.cpu.products.packing import (
    Packing,
    a_packing,
    b_packing,
    has_part,
    has_unit_stride,
    pack,
    panels_of,
    part_of_panels,
    whole_region,
)
from tilec.ir.exprs import all_of, dtype_of, int_value, same
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Block, Copy, If, Kernel, Launch, Region, Stmt, walk
from tilec.lowering.analysis.regions import is_whole, minima, static
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import users
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr

    from tilec.targets import Target


class PackOperands(Pass):
    """In: ``MicroGemm`` on tiles as the author wrote them. Out: every ``b`` has unit stride along its
    columns, every operand the accumulator's compute type; copies into such tiles write that form, of the only
    product's operand no more than it reads."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with packed operands."""
        return rewrite_launches(kernel, lambda launch: _Packer(kernel, launch).result())


class _Packer(ScopedRewrite):
    """Packs the operands of one launch. ``staged`` maps a tile to the packing that its Copy writes,
    ``placed`` one that all of its products may read in place to the condition under which they do."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.staged: dict[Var, Packing] = {}
        self.placed: dict[Var, Expr] = {}
        used = users(launch.body)
        everywhere = {*launch.block_vars, *(dim.var for dim in kernel.dims if dim.var is not None)}
        for stmt in walk(launch.body):
            if isinstance(stmt, Alloc) and stmt.buffer in used:
                packing = _staged(stmt.buffer, used[stmt.buffer], everywhere)
                if packing is None:
                    continue
                self.staged[stmt.buffer] = packing
                in_place = _in_place(stmt.buffer, used[stmt.buffer])
                if in_place is not None:
                    self.placed[stmt.buffer] = in_place

    def result(self) -> Launch:
        """The launch with packed operands, without tiles that these have no use for."""
        return self.launch_with(_without_unused(self.block(self.launch.body), self.staged))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Packed tiles in place of staged ones, and packing before other products."""
        if isinstance(stmt, Alloc) and stmt.buffer in self.staged:
            packing = self.staged[stmt.buffer]
            return [*([stmt] if packing.rearranges else []), replace(stmt, buffer=packing.buffer)]
        if isinstance(stmt, Copy) and stmt.dst.buffer in self.staged:
            filled = self._filled(stmt, self.staged[stmt.dst.buffer])
            in_place = self.placed.get(stmt.dst.buffer)
            if in_place is None:
                return filled
            return [If(self.facts.simplify(tirx.Not(in_place)), tuple(filled), (), loc=stmt.loc)]
        if isinstance(stmt, MicroGemm):
            return self._product(stmt)
        return super().stmt(stmt)

    def _filled(self, copy: Copy, packing: Packing) -> list[Stmt]:
        """What stands for the Copy of a staged tile."""
        source = _source_matrix(copy, packing)
        if packing.rearranges or source is None:
            return self._rearranged(copy, source, packing)
        panels = panels_of(packing, source) if self._has(source, packing) else None
        return pack(packing, source, copy) if panels is None else [replace(panels, loc=copy.loc)]

    def _rearranged(self, copy: Copy, source: Matrix | None, packing: Packing) -> list[Stmt]:
        """A tile that is taken apart: its source is, where that has all that is read of it."""
        staged = [copy, *pack(packing, packing.source, copy)]
        if source is None or not _has_runs(source, packing):
            return staged
        outside = self._open_ends(_read(source, packing))
        if outside is None:
            return staged
        direct = pack(packing, source, copy)
        return [If(all_of(outside), tuple(direct), tuple(staged), loc=copy.loc)] if outside else direct

    def _open_ends(self, region: Region) -> list[Expr] | None:
        """The conditions under which a region lies in its buffer; None where it may start below zero."""
        ends = []
        for start, extent, size in zip(region.start, region.extent, region.buffer.shape, strict=True):
            if self.facts.prove(start >= 0) is not True:
                return None
            if self.facts.prove(start + extent <= size) is not True:
                ends.append(self.facts.simplify(size - start) >= extent)
        return ends

    def _has(self, source: Matrix, packing: Packing) -> bool:
        """Whether all that products read of a packing is inside of its source."""
        return packing.counts is not None and all(
            self._reaches(source.region, axis, count)
            for axis, count in zip((source.row, source.col), packing.counts, strict=True)
        )

    def _reaches(self, region: Region, axis: int, count: int | Expr) -> bool:
        start, size = region.start[axis], region.buffer.shape[axis]
        if self.facts.prove(start >= 0) is not True:
            return False
        return any(self.facts.prove(start + part <= size) is True for part in minima(count))

    def _product(self, gemm: MicroGemm) -> list[Stmt]:
        if gemm.a.region.buffer not in self.placed:
            gemm = replace(gemm, a_place=None, in_place=None)
        b, before_b = self._operand(gemm, gemm.b, b_packing(gemm, staged=False))
        if has_bands(gemm, gemm.a):
            band = band_of(gemm)
            return [Alloc(band), *before_b, replace(gemm, b=b, band=band)]
        a, before_a = self._operand(gemm, gemm.a, a_packing(gemm, staged=False))
        return [*before_a, *before_b, replace(gemm, a=a, b=b)]

    def _operand(self, gemm: MicroGemm, matrix: Matrix, packing: Packing | None) -> tuple[Matrix, list[Stmt]]:
        """The operand to compute with, and the statements that make it."""
        staged = self.staged.get(matrix.region.buffer)
        if staged is not None:
            return part_of_panels(staged, matrix), []
        if packing is None:
            return matrix, []
        return packing.matrix, [Alloc(packing.buffer), *pack(packing, packing.source, gemm)]


def _read(source: Matrix, packing: Packing) -> Region:
    """What packing reads of its source: of words what is counted, of others whole vectors."""
    extents = list(source.region.extent)
    if packing.counts is not None and packing.words is not None and source.panel is None:
        extents[source.row], extents[source.col] = packing.counts
    return replace(source.region, extent=tuple(extents))


def _without_unused(body: Block, tiles: Mapping[Var, Packing]) -> Block:
    """``body`` without those of ``tiles`` that nothing names."""
    used = users(body)

    def needed(stmt: Stmt) -> bool:
        return not isinstance(stmt, Alloc) or stmt.buffer not in tiles or stmt.buffer in used

    return rewrite_blocks(body, lambda block: [stmt for stmt in block if needed(stmt)])


def _has_runs(source: Matrix, packing: Packing) -> bool:
    """Whether the source of a packing has the tile's type, and elements that are neighbours along the same
    axis."""
    own, buffer = packing.source, source.region.buffer
    if str(buffer.dtype) != str(own.region.buffer.dtype) or not has_unit_stride(buffer):
        return False
    last = len(own.region.start) - 1
    axis = source.row if own.row == last else source.col
    return last in (own.row, own.col) and axis == len(source.region.start) - 1


def _staged(tile: Var, users_of_tile: list[Stmt], everywhere: set[Var]) -> Packing | None:
    """The packing for a tile that one whole Copy fills and the same operand of products reads; all statements
    know the names ``everywhere``."""
    copies = [user for user in users_of_tile if isinstance(user, Copy)]
    products = [user for user in users_of_tile if isinstance(user, MicroGemm)]
    if len(copies) != 1 or not products or len(copies) + len(products) != len(users_of_tile):
        return None
    if not copies[0].dst.buffer.same_as(tile) or not is_whole(copies[0].dst):
        return None
    packings = [_role(tile, product) for product in products]
    first = packings[0]
    if first is None or any(other is None or other.form != first.form for other in packings):
        return None
    if _source_matrix(copies[0], first) is None:
        return None
    if len(products) > 1:
        return first
    known = everywhere | _names(*copies[0].src.start, *copies[0].src.buffer.shape)
    return replace(first, counts=_counts(tile, products[0], known))


def _in_place(tile: Var, users_of_tile: list[Stmt]) -> Expr | None:
    """The condition under which all products that read a staged tile read its source in place; None where one
    of them does not, or they do under several."""
    products = [user for user in users_of_tile if isinstance(user, MicroGemm)]
    first, *others = (gemm.in_place if gemm.a.region.buffer.same_as(tile) else None for gemm in products)
    if first is None or not all(other is not None and same(first, other) for other in others):
        return None
    return first


def _counts(tile: Var, gemm: MicroGemm, known: set[Var]) -> tuple[int | Expr, int | Expr] | None:
    """Rows and columns of ``tile`` that its only product reads, where that reads it whole and names that are
    ``known`` tell them: of words whole ones, and whole panels. Other forms may read beyond."""
    form, is_a = DOT_FORMS.get(gemm.block.form), gemm.a.region.buffer.same_as(tile)
    if form is None and gemm.block.form != "fma":
        return None
    if not is_whole((gemm.a if is_a else gemm.b).region):
        return None
    depth, columns = gemm.depth, gemm.columns
    if form is not None:
        depth = _whole(depth, form.group, static(gemm.b.region.extent[gemm.b.row]))
        columns = _whole(columns, form.panel(gemm.block), static(gemm.c.extent[-1]))
    counts = (gemm.rows, depth) if is_a else (depth, columns)
    return counts if _names(*counts) <= known else None


def _whole(count: int | Expr, size: int, most: int) -> int | Expr:
    """``count`` up to a multiple of ``size``, ``most`` at most."""
    if isinstance(count, int):
        return min(-(-count // size) * size, most)
    step = tirx.const(size, dtype_of(count))
    return tirx.min(tirx.floordiv(count + (size - 1), step) * step, tirx.const(most, dtype_of(count)))


def _names(*exprs: int | Expr) -> set[Var]:
    """The variables of expressions."""
    nodes = [node for expr in exprs if not isinstance(expr, int) for node in walk_expr(expr)]
    return {node for node in nodes if isinstance(node, Var)}


def _role(tile: Var, gemm: MicroGemm) -> Packing | None:
    """The packing that ``gemm`` wants of ``tile``, where it reads it whole, or of panels whole words along K,
    and as one operand."""
    if gemm.a.region.buffer.same_as(tile) == gemm.b.region.buffer.same_as(tile):
        return None
    is_a = gemm.a.region.buffer.same_as(tile)
    matrix = gemm.a if is_a else gemm.b
    if is_a:
        return a_packing(gemm, staged=True) if is_whole(matrix.region) else None
    whole = replace(matrix, region=whole_region(tile))
    packing = b_packing(replace(gemm, b=whole), staged=True)
    return packing if packing is not None and has_part(packing, matrix) else None


def _source_matrix(copy: Copy, packing: Packing) -> Matrix | None:
    """The source of ``copy`` as the matrix that its tile is for ``packing``."""
    tile = [axis for axis, extent in enumerate(copy.dst.extent) if int_value(extent) != 1]
    source = [axis for axis, extent in enumerate(copy.src.extent) if int_value(extent) != 1]
    own = packing.source
    needed = [own.row, own.col] + ([] if own.panel is None else [own.panel])
    if len(tile) != len(source):
        return None
    axes = dict(zip(tile, source, strict=True))
    if any(axis not in axes for axis in needed):
        return None
    panel = None if own.panel is None else axes[own.panel]
    return Matrix(copy.src, axes[own.row], axes[own.col], panel)
