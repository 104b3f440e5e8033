"""Loads that an author has arrive at barriers, by the unit that they name: TMA, where they are boxes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.pipelines.asked_hints import said
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.nodes import BoxLoad
from tilec.backends.cuda.passes.threads.open_barriers import announced_in, by_threads
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import check_box
from tilec.backends.cuda.statement_roles.rings.plan import is_of_boxes, places_in
from tilec.backends.cuda.warp_roles.unfit import Unfit, need, without_refusals
from tilec.ir.exprs import int_value
from tilec.ir.nodes import PRODUCTS, Alloc, Kernel, Launch, Stmt, walk
from tilec.ir.nodes.barriers import BulkLoad
from tilec.ir.options import AGAINST_TMA, NO_TMA
from tilec.ir.roads import Road
from tilec.lowering.analysis.roads import in_line_of, road_of, with_roads
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import addressed_in, changed_in
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tilec.ir.stmt import Region
    from tilec.targets import Target

_REMEDY = "docs/cuda.md lists what TMA takes"


class BringBoxes(Pass):
    """In: BulkLoads of launches that no strategy has taken. Out: BoxLoads of those that bring whole boxes,
    which announce their bytes where the author does not; others have the reason among the roads.
    Where all of them are boxes, the roles of the warps are those that their author gives."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its boxes."""
        if not has_tma(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: _brought(kernel, launch))


def _brought(kernel: Kernel, launch: Launch) -> Launch:
    if not any(isinstance(stmt, BulkLoad) for stmt in walk(launch.body)):
        return launch
    boxes = _Boxes(kernel, launch)
    made = boxes.launch_with(boxes.block(launch.body))
    if any(isinstance(stmt, BulkLoad) for stmt in walk(made.body)):
        return with_roads(made, boxes.roads)
    own = in_line_of(Road("T.Kernel", "warp_roles", "warp roles: those that its author gives"), launch)
    return with_roads(replace(made, roads=without_refusals(launch.roads)), (own, *boxes.roads))


class _Boxes(ScopedRewrite):
    """Rewrites the loads of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.roads: list[Road] = []
        self._against = AGAINST_TMA if kernel.option(NO_TMA) else None
        self._changed, self._announced = changed_in(launch), set(announced_in(launch.body))
        stmts = list(walk(launch.body))
        self._allocs = {stmt.buffer: stmt for stmt in stmts if isinstance(stmt, Alloc)}
        self._operands = {
            region.buffer for gemm in stmts if isinstance(gemm, PRODUCTS) for region in (gemm.a, gemm.b)
        }
        self._named, self._places = addressed_in(launch.body), places_in(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A load as a box; others as they are."""
        if not isinstance(stmt, BulkLoad):
            return super().stmt(stmt)
        try:
            self._check(stmt)
        except Unfit as unfit:
            self.roads.append(by_threads(stmt, str(unfit), unfit.remedy or _REMEDY))
            return [stmt]
        self.roads += [road_of(stmt, "tma", "TMA, by hand"), *said(stmt, stmt.hints, "tma")]
        announces = stmt.barrier not in self._announced
        evict = stmt.hints.eviction
        load = BoxLoad(
            stmt.src, stmt.dst, stmt.barrier, stmt.index, evict, stmt.alone, announces, loc=stmt.loc
        )
        return [load]

    def _check(self, stmt: BulkLoad) -> None:
        """Unfit for a load that TMA does not carry out."""
        tile = stmt.dst.buffer
        need(self._against is None, f"{self._against} keeps it from TMA", remedy="leave the pass config out")
        need(not stmt.hints.avoids_tma, "its author keeps it from TMA", remedy="leave disable_tma out")
        need(stmt.src.buffer not in self._changed, f"the launch writes {stmt.src.buffer.name}")
        need(tile not in self._named, f"foreign code gets the address of {tile.name}")
        need(
            is_of_boxes(self._allocs[tile], tile in self._places),
            f"T.annotate_layout gives {tile.name} another order than TMA writes",
            remedy="leave it out",
        )
        need(
            _is_version(stmt.dst),
            f"{tile.name} is filled in part",
            remedy="copy to whole tiles, or to whole stages of one",
        )
        check_box(stmt.src, stmt.src.start, stmt.dst, tile in self._operands, self.facts)


def _is_version(region: Region) -> bool:
    """Whether a region is a whole tile, or one of those that its first axes count."""
    sizes = [int_value(size) for size in region.buffer.shape]
    whole = [
        int_value(start) == 0 and int_value(extent) == size
        for start, extent, size in zip(region.start, region.extent, sizes, strict=True)
    ]
    lead = next((axis for axis, extent in enumerate(region.extent) if int_value(extent) != 1), 0)
    return all(whole[lead:])
