"""Places of sparse operands come in boxes of TMA, also where a trip wants less of a row than one has.

    copy(E[.., k * 8:+8], e); gemm_sp(a, e, b, c)
    ->
    copy(E[.., k // 2 * 16:+16], e); gemm_sp(a, e[:, k % 2 * 8:+8], b, c)

Places are an eighth of the bytes of float16 values, so that what is brought twice is little; cp.async of a
few bytes of each row takes longer. H200, float16, 4096 x 4096 x 4096, torch's time over that of a launch with
64 of K a trip, by cp.async and so: tiles of 256 x 128 1.109 and 1.321, of 128 x 192 1.100 and 1.176, of
128 x 256 1.157 and 1.178; of 128 x 128, whose warpgroups take turns, 1.085 and 1.001.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import check_box
from tilec.backends.cuda.statement_roles.rings.plan import is_of_boxes
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import dtype_of, loads
from tilec.ir.nodes import Alloc, Block, Copy, Kernel, Launch, Region, SparseGemm, Stmt, every_block, walk
from tilec.ir.options import NO_ROLES
from tilec.ir.traits import buffers
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class WidenPlaces(Pass):
    """In: launches that nobody has given roles. Out: tiles that nothing but a copy fills, and nothing but
    sparse products behind it read as places, have rows as long as boxes, if TMA brings these."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its tiles."""
        if not has_tma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: _widened(kernel, launch))


@dataclass(frozen=True)
class _Wide:
    """A tile with rows as long as boxes for a narrow one: the copy that fills it, and where in its rows those
    of the narrow one begin."""

    tile: Var
    copy: Copy
    shift: Expr


def _widened(kernel: Kernel, launch: Launch) -> Launch:
    filled = _filled(launch.body)
    if not filled:
        return launch
    found = _Finder(kernel, launch, filled).found
    body = rewrite_blocks(launch.body, lambda block: [_rewritten(stmt, found) for stmt in block])
    return replace(launch, body=body) if found else launch


def _filled(body: Block) -> dict[Stmt, Alloc]:
    """The copies that fill tiles of places for products behind them in the same block, which nothing else
    uses, and the tiles."""
    allocs = {stmt.buffer: stmt for stmt in walk(body) if isinstance(stmt, Alloc)}
    users: dict[Var, list[Stmt]] = {}
    for stmt in walk(body):
        for buffer in set() if isinstance(stmt, Alloc) else set(buffers(stmt)):
            users.setdefault(buffer, []).append(stmt)
    return {
        copy: allocs[copy.dst.buffer]
        for block in every_block(body)
        for place, copy in enumerate(block)
        if isinstance(copy, Copy)
        and copy.dst.buffer in allocs
        and all(
            _reads_places(stmt, copy.dst.buffer, block[place + 1 :])
            for stmt in users[copy.dst.buffer]
            if stmt is not copy
        )
    }


def _reads_places(stmt: Stmt, tile: Var, behind: Block) -> bool:
    """Whether a statement is a product ``behind`` that reads a tile as the places of its values, row by
    row."""
    if not isinstance(stmt, SparseGemm) or stmt not in behind:
        return False
    others = {region.buffer for region in (stmt.a, stmt.b, stmt.c)}
    return stmt.e.buffer.same_as(tile) and not stmt.trans_e and tile not in others


class _Finder(ScopedRewrite):
    """Finds the tiles of a launch, ``found``; nothing is rewritten."""

    def __init__(self, kernel: Kernel, launch: Launch, filled: Mapping[Stmt, Alloc]) -> None:
        super().__init__(kernel, launch)
        self.found: dict[Var, _Wide] = {}
        self._filled = filled
        self.block(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Looks at a copy."""
        if isinstance(stmt, Copy) and stmt in self._filled:
            with suppress(Unfit):
                self._look(stmt, self._filled[stmt])
        return super().stmt(stmt)

    def _look(self, copy: Copy, alloc: Alloc) -> None:
        """Unfit for a copy that TMA would not bring with longer rows, either."""
        tile, start = copy.dst.buffer, copy.src.start[-1]
        shape, size = static_extents(tile), element_bytes(str(tile.dtype))
        if len(shape) != 2 or not is_whole(copy.dst) or not is_of_boxes(alloc, True):
            return
        per = STRIDE_BYTES // size
        if per % shape[1] or per == shape[1] or copy.hints.avoids_tma or any(True for _ in loads(start)):
            return
        if not divides(shape[1], start, self.facts):
            return
        wide = tirx.decl_buffer((shape[0], per), str(tile.dtype), name=str(tile.name), scope="shared.dyn")
        count = tirx.const(per, dtype_of(start))
        first = self.facts.analyzer.simplify(tirx.floordiv(start, count) * count)
        src = Region(copy.src.buffer, (*copy.src.start[:-1], first), (*copy.src.extent[:-1], per))
        check_box(src, src.start, whole_tile(wide), False, self.facts, is_spaced=True)
        shift = self.facts.analyzer.simplify(tirx.floormod(start, count))
        self.found[tile] = _Wide(wide, replace(copy, src=src, dst=whole_tile(wide)), shift)


def _rewritten(stmt: Stmt, found: Mapping[Var, _Wide]) -> Stmt:
    if isinstance(stmt, Alloc) and stmt.buffer in found:
        return replace(stmt, buffer=found[stmt.buffer].tile, asked=None)
    if isinstance(stmt, Copy) and stmt.dst.buffer in found:
        return found[stmt.dst.buffer].copy
    if isinstance(stmt, SparseGemm) and stmt.e.buffer in found:
        wide, (row, column) = found[stmt.e.buffer], stmt.e.start
        return replace(stmt, e=Region(wide.tile, (row, wide.shift + column), stmt.e.extent))
    return stmt
