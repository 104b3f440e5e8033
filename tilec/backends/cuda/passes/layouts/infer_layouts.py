"""Which thread holds which element of a fragment, and which thread runs which iteration of a loop.

Rules, strongest first; what an author asks for by T.annotate_layout stands above all of them, where the
statements can obey it:
1. A tensor-core product fixes its accumulator, and an A operand that is a fragment; a scan fixes its lines.
2. A loop takes its layout from a fragment whose indices are its variables; fragments that it indexes so take
   theirs from it, also those of which an iteration names a few elements of a row at constant places, or at
   those that a few trips choose: it has the row in its registers. There it names others, which data choose,
   as well. Variables of few values that such a row does not have are in registers, too. A fragment that
   turns another one does not follow where it would meet each sector of a tensor several times.
3. A reduction's result has the layout of its source without the axis: every thread along it knows the result.
4. What is left takes the widest coalesced vectors; a thread has neighbours where their windows overlap.
5. Shared operands of products, and tiles that lanes load by ldmatrix, are swizzled so that reading eight rows
meets no bank twice.
A statement that needs an element which another thread holds goes through shared memory, by copies that this
pass adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.loop_widths import vector_widths
from tilec.backends.cuda.analysis.accesses.windows_of_loops import window_axes
from tilec.backends.cuda.analysis.blocks.threads import team_warps, warps_of
from tilec.backends.cuda.analysis.layouts.asked_layouts import obeyed
from tilec.backends.cuda.analysis.layouts.fragments import (
    WARP,
    accumulator_layout,
    coalesced,
    extended,
    operand_layout,
)
from tilec.backends.cuda.analysis.layouts.held_alike import held_alike, sums_in
from tilec.backends.cuda.analysis.layouts.loops import (
    Lines,
    fitting_fragment,
    followed,
    left_out,
    loop_extents,
    loop_layout,
    loop_lines,
    row_lines,
    with_neighbours,
    with_rows,
)
from tilec.backends.cuda.analysis.layouts.sectors import moves_along, run_of_warp, turns
from tilec.backends.cuda.analysis.layouts.summed_fragments import summed_fragments, summed_layout
from tilec.backends.cuda.analysis.layouts.tiles import result_layout, slices_of, static_extents, swizzled
from tilec.backends.cuda.analysis.pipelines.asked_hints import layout_loss, said
from tilec.backends.cuda.analysis.products.registers import check_registers
from tilec.backends.cuda.analysis.products.units import operands_of
from tilec.backends.cuda.analysis.products.wgmma import operand_in_memory, slab_bytes, slabs, sums_layout
from tilec.backends.cuda.nodes import (
    BlockScan,
    BoxLoad,
    HeldProduct,
    TensorProduct,
    TensorPut,
    TensorStore,
    TensorSums,
    TurnTile,
    WarpGemm,
    WarpgroupProduct,
)
from tilec.backends.cuda.passes.layouts.apply_layouts import LayoutRewrite
from tilec.backends.cuda.passes.sums.spread_scans import scan_layout
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import int_value
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Block, For, Kernel, Launch, Parallel, Reduce, Stmt, children, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import LaneLoad
from tilec.ir.roads import Road
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.uses import addressed_in, used_in, written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.targets import SECTOR

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class InferLayouts(Pass):
    """In: Parallel, Reduce, WarpGemm over tiles without layouts. Out: ThreadLoop, BlockReduce, WarpGemm;
    every fragment and every shared operand has a layout. CompileError for products that do not fit the
    registers."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its layouts."""
        return rewrite_launches(kernel, lambda launch: _Inference(kernel, launch).run())


class _Inference:
    """The layouts of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        self.launch = launch
        self.warps = warps_of(launch)
        self.fragments = {stmt.buffer for stmt in walk(launch.body)
                          if isinstance(stmt, Alloc) and stmt.buffer.scope() == "local.fragment"}  # fmt: skip
        self.widths, self.alike = vector_widths(kernel, launch)
        self.layouts: dict[Var, Layout] = {}
        self.loops: dict[Stmt, Layout] = {}
        self.work: list[Parallel | Reduce] = []
        self.windows: dict[Stmt, set[int]] = {}
        self.addressed = addressed_in(launch.body)
        self.summed = summed_fragments(launch.body, self.fragments)

    def run(self) -> Launch:
        """The launch with layouts."""
        teams = _teams(self.launch.body, self.warps)
        holders = {buffer: _holders(buffer, teams, self.warps) for buffer in self.fragments}
        self.layouts, roads = obeyed(self.launch, holders, self.addressed)
        asked = frozenset(self.layouts)
        self._boxes()
        for team in teams.values():
            self._infer(team)
            roads += self._hints(team)
        for buffer in self.fragments - set(self.layouts):
            self.layouts[buffer] = coalesced(static_extents(buffer), self.warps, 1)
        self.layouts = {buffer: canonical(layout) for buffer, layout in self.layouts.items()}
        uniformity = Uniformity(self.launch)
        rewrite = LayoutRewrite(
            self.warps, uniformity, self.fragments, self.layouts, self.loops, self.widths, self.alike, asked
        )
        body = rewrite.launch_body(self.launch.body)
        found = with_roads(replace(self.launch, body=body), (*roads, *rewrite.roads))
        check_registers(found)
        return found

    def _boxes(self) -> None:
        """Operands that TMA brings lie in its patterns, as do all of tcgen05, and so do tiles of which lanes
        load rows, those that loops over a product's fragments read, eight rows at a time, and those that TMA
        stores."""
        stmts = list(walk(self.launch.body))
        products = [stmt for stmt in stmts if isinstance(stmt, WarpGemm)]
        operands = {region.buffer for stmt in products for region in (stmt.a, stmt.b)}
        by_units = (stmt for stmt in stmts if isinstance(stmt, (HeldProduct, TensorProduct)))
        for tile in {region.buffer for stmt in by_units for region in operands_of(stmt)}:
            self.layouts.setdefault(tile, slabs(tile))
        operands |= {stmt.source.source for stmt in stmts if isinstance(stmt, LaneLoad)}
        operands |= {stmt.src.buffer for stmt in stmts if isinstance(stmt, TurnTile)}
        rows = {load.dst.buffer for load in stmts if isinstance(load, BoxLoad) and _brings_rows(load)}
        operands |= self._read_to_fragments(stmts) & rows
        for stmt in stmts:
            if isinstance(stmt, BoxLoad) and stmt.dst.buffer in operands and slab_bytes(stmt.dst.buffer):
                self.layouts.setdefault(stmt.dst.buffer, slabs(stmt.dst.buffer))
            if isinstance(stmt, TensorStore) and slab_bytes(stmt.src.buffer):
                self.layouts.setdefault(stmt.src.buffer, slabs(stmt.src.buffer))
        for tile in _passed_on(stmts) - self.addressed:
            self.layouts.setdefault(tile, swizzled(tile))

    def _read_to_fragments(self, stmts: Sequence[Stmt]) -> set[Var]:
        """Tiles of which lanes read pieces of eight rows at once: by loops over a product's sums, over
        operands of wgmma in registers, or over fragments that go into either."""
        held = sums_in(stmts)
        held |= {stmt.a.buffer for stmt in stmts if isinstance(stmt, WarpgroupProduct)} & self.fragments
        wide = {fragment for fragment in self.fragments if _is_wide(fragment)}
        loops = [accesses(loop.body) for loop in stmts if isinstance(loop, Parallel) and len(loop.vars) > 1]
        used = [{item.buffer for item in items} for items in loops]
        for found in reversed(used):
            held |= found & wide if found & held else set()
        tiles = {buffer for found in used if found & held for buffer in found}
        return {tile for tile in tiles if tile.scope() == "shared.dyn"}

    def _infer(self, team: _Team) -> None:
        """The layouts of what some warps hold and run."""
        whole, self.warps = self.warps, team.warps
        for stmt in sorted(team.stmts, key=lambda stmt: not isinstance(stmt, WarpgroupProduct)):
            if isinstance(stmt, WarpGemm):
                self._anchor(stmt)
            elif isinstance(stmt, TensorSums):
                self.layouts.setdefault(stmt.dst.buffer, accumulator_layout(stmt.tile))
            elif isinstance(stmt, TensorPut):
                self.layouts.setdefault(stmt.src.buffer, accumulator_layout(stmt.tile))
            elif isinstance(stmt, LaneLoad):
                self._rows(stmt)
            elif isinstance(stmt, TurnTile):
                self.layouts.setdefault(stmt.src.buffer, swizzled(stmt.src.buffer))
            elif isinstance(stmt, BlockScan):
                self.layouts[stmt.tile.buffer] = scan_layout(stmt.tile.buffer, self.warps)
        self.work = [stmt for stmt in team.stmts if isinstance(stmt, (Parallel, Reduce))]
        for stmt in self.work:
            if isinstance(stmt, Parallel) and stmt.hints.loop_layout is not None:
                self._assign_asked(stmt, stmt.hints.loop_layout)
        while self._propagate() or self._choose():
            pass
        self.warps = whole

    def _assign_asked(self, loop: Parallel, layout: Layout) -> None:
        if layout_loss(loop, self.warps) is None:
            self._assign(loop, layout)

    def _hints(self, team: _Team) -> tuple[Road, ...]:
        """What loops do not obey."""
        loops = [stmt for stmt in team.stmts if isinstance(stmt, Parallel) and stmt.hints.given]
        kept = ((loop, layout_loss(loop, team.warps)) for loop in loops)
        of_layouts = [road_of(loop, "layout", "keeps its own layout", loss) for loop, loss in kept if loss]
        others = (said(loop, loop.hints, "vectors", self.widths.get(loop, 1)) for loop in loops)
        return (*of_layouts, *(road for roads in others for road in roads))

    # ---- anchors ----

    def _anchor(self, gemm: WarpGemm) -> None:
        lead = ((),) * (len(gemm.c.extent) - 2)
        made = sums_layout(gemm, slices_of(gemm.c))
        self.layouts.setdefault(gemm.c.buffer, Layout((*lead, *made.digits)))
        if gemm.a.buffer in self.fragments and not self._is_shared(gemm):
            lead = ((),) * (len(gemm.a.extent) - 2)
            self.layouts.setdefault(gemm.a.buffer, Layout((*lead, *operand_layout(gemm.tile).digits)))
        for region, across in ((gemm.a, gemm.trans_a), (gemm.b, not gemm.trans_b)):
            if region.buffer.scope() == "shared.dyn":
                self.layouts.setdefault(region.buffer, operand_in_memory(gemm, region.buffer, across))

    def _is_shared(self, gemm: WarpGemm) -> bool:
        """Whether warpgroups share the columns of a product whose A is made of sums of which each has a part:
        they hand these on in shared memory."""
        shares = isinstance(gemm, WarpgroupProduct) and gemm.tile.warps[1] > 1
        return shares and gemm.a.buffer in self.made_of_sums

    @cached_property
    def made_of_sums(self) -> set[Var]:
        """The fragments that loops write from accumulators."""
        stmts = list(walk(self.launch.body))
        sums = sums_in(stmts)
        loops = [stmt for stmt in stmts if isinstance(stmt, Parallel)]
        used = ((loop, used_in((loop,))) for loop in loops)
        return {made for loop, names in used if names & sums for made in written_in(loop.body)} - sums

    def _rows(self, stmt: LaneLoad) -> None:
        """A tile of which lanes load rows of 16 bytes; not one that foreign code gets the address of."""
        tile = stmt.source.source
        if tile.scope() == "shared.dyn" and tile not in self.addressed:
            self.layouts.setdefault(tile, swizzled(tile, stmt.trans))

    # ---- propagation ----

    def _propagate(self) -> bool:
        """One round of rules 2 and 3; whether anything new is known."""
        before = len(self.layouts) + len(self.loops)
        for stmt in self.work:
            if isinstance(stmt, Reduce):
                self._slice(stmt)
            elif stmt not in self.loops:
                self._derive(stmt, partly=False)
        return len(self.layouts) + len(self.loops) > before

    def _slice(self, stmt: Reduce) -> None:
        """The layout of what a reduction leaves, from that of a fragment that it reads."""
        source = self.layouts.get(stmt.src.buffer)
        if source is None or not {stmt.src.buffer, stmt.dst.buffer} <= self.fragments:
            return
        self.layouts.setdefault(stmt.dst.buffer, result_layout(stmt, source))

    def _derive(self, loop: Parallel, partly: bool) -> None:
        """The layout of a loop from the fragments that it indexes by its variables."""
        items = [item for item in accesses(loop.body) if item.buffer in self.layouts
                 and item.buffer in self.fragments]  # fmt: skip
        items.sort(key=lambda item: not item.is_write)
        found = fitting_fragment(loop, items, self.layouts, partly)
        if found is None:
            return
        self._assign(loop, loop_layout(loop, found, self.layouts, self.warps, self.widths[loop]))

    def _assign(self, loop: Parallel, layout: Layout) -> None:
        self.loops[loop] = layout
        for item in accesses(loop.body):
            if not self._is_open(item.buffer):
                continue
            shape, sizes = static_extents(item.buffer), loop_extents(loop)
            lines, rows = loop_lines(item, loop), self._row_lines(item, loop)
            known = lines or rows or ()
            ends = (own[-1] if own else None for own in known)
            extents = tuple(
                sizes[end.axis] * end.factor // end.per if end else extent if rows else 1
                for end, extent in zip(ends, shape, strict=False)
            )
            made = followed(layout, known) if shape == extents else None
            if made is not None and (rows or not self._is_scattered(item, loop, made)):
                self.layouts[item.buffer] = with_rows(made, shape) if rows else made

    def _is_scattered(self, item: Access, loop: Parallel, layout: Layout) -> bool:
        """Whether a fragment that lies so, turned from how a loop has another one, would meet each sector of
        a tensor several times in a loop that moves it: passing shared memory takes less."""
        if not any(turns(item, other, loop) for other in accesses(loop.body) if other.buffer in self.layouts):
            return False
        fragment = item.buffer
        together = run_of_warp(layout, static_extents(fragment)) * element_bytes(str(fragment.dtype))
        loops = (stmt for stmt in self.work if isinstance(stmt, Parallel) and stmt not in self.loops)
        return together < SECTOR and any(moves_along(loop, fragment) for loop in loops)

    def _choose(self) -> bool:
        """Rule 4 for the largest statement that nothing decides, of equal ones that with the widest vectors,
        but first for loops whose iterations have rows of fragments to themselves or read windows; whether
        there was one."""
        open_work = [stmt for stmt in self.work if isinstance(stmt, Reduce) or stmt not in self.loops]
        for stmt in sorted(open_work, key=self._rank, reverse=True):
            if isinstance(stmt, Parallel):
                self._derive(stmt, partly=True)
                if stmt not in self.loops:
                    plain = self._coalesced(stmt)
                    self._assign(stmt, self._summed(stmt, plain) or plain)
                return True
            if isinstance(stmt, Reduce) and self._is_open(stmt.src.buffer):
                self.layouts[stmt.src.buffer] = coalesced(static_extents(stmt.src.buffer), self.warps, 1)
                return True
        return False

    def _rank(self, stmt: Parallel | Reduce) -> tuple[bool, int, int]:
        """How much a statement has to say."""
        first = isinstance(stmt, Parallel) and (any(self._open_rows(stmt)) or self._windows(stmt))
        return bool(first), _work(stmt), self.widths.get(stmt, 1)

    def _summed(self, loop: Parallel, plain: Layout) -> Layout | None:
        """The layout of a loop over fragments that reductions sum in trips that move nothing of them, where
        it is better than a ``plain`` one."""
        found = {self.summed[item.buffer] for item in accesses(loop.body) if item.buffer in self.summed}
        if len(found) != 1 or len(extents := loop_extents(loop)) != 2:
            return None
        summed = found.pop()
        along = (extents[summed.axis],)
        lines = (stmt for stmt in self.work if isinstance(stmt, Parallel) and loop_extents(stmt) == along)
        vector = max((self.alike.get(line, self.widths[line]) for line in lines), default=1)
        return summed_layout(extents, summed, self.warps, vector, plain)

    def _coalesced(self, loop: Parallel) -> Layout:
        """The layout of a loop that no fragment decides. What fragments whose rows its iterations have leave
        out of its variables is in registers, so that a thread has the row for all of their values; where they
        read what their neighbours read, too, a thread has neighbours."""
        extents, windows = loop_extents(loop), self._windows(loop)
        held = {axis for rows in self._open_rows(loop) for axis in left_out(rows, loop)}
        free = [axis for axis in range(len(extents)) if axis not in held]
        if not held or not free:
            width = self._width_of_all(loop, range(len(extents))) if windows else self.widths[loop]
            return with_neighbours(coalesced(extents, self.warps, width), windows)
        width = self._width_of_all(loop, free)
        spread = extended(((),) * len(extents), extents, free, [(1, WARP)], [(1, self.warps)], width)
        return with_rows(spread, extents)

    def _width_of_all(self, loop: Parallel, axes: Sequence[int]) -> int:
        """How many neighbours along the last of some ``axes`` a thread may have of a loop and of those that
        fill and empty its fragments, such that there are some for all threads."""
        used = {item.buffer for item in accesses(loop.body) if self._is_open(item.buffer)}
        others = (stmt for stmt in self.work if isinstance(stmt, Parallel) and used & used_in((stmt,)))
        extents = loop_extents(loop)
        each = max(math.prod(extents[axis] for axis in axes) // (self.warps * WARP), 1)
        widths = (math.gcd(self.widths[other], each, extents[axes[-1]]) for other in others)
        return max(widths, default=self.widths[loop])

    def _windows(self, loop: Parallel) -> set[int]:
        """The variables along which iterations of a loop read what their neighbours read."""
        if loop not in self.windows:
            self.windows[loop] = window_axes(loop, self.trips)
        return self.windows[loop]

    def _open_rows(self, loop: Parallel) -> Iterator[tuple[Lines, ...]]:
        """What the iterations of a loop have of fragments without a layout whose rows they have."""
        for item in accesses(loop.body):
            rows = self._row_lines(item, loop) if self._is_open(item.buffer) else None
            if rows is not None:
                yield rows

    def _row_lines(self, item: Access, loop: Parallel) -> tuple[Lines, ...] | None:
        """The lines of an access to rows; None also where what is left of the variables is too little for all
        threads."""
        rows = row_lines(item, loop, self.trips)
        if rows is None or not (out := left_out(rows, loop)):
            return rows
        left = math.prod(extent for axis, extent in enumerate(loop_extents(loop)) if axis not in out)
        return rows if left >= self.warps * WARP else None

    @cached_property
    def trips(self) -> set[Var]:
        """What counts the trips of loops of several, as many as is known."""
        loops = (stmt for stmt in walk(self.launch.body) if isinstance(stmt, For))
        return {loop.var for loop in loops if (int_value(loop.stop - loop.start) or 0) > 1}

    def _is_open(self, buffer: Var) -> bool:
        return buffer in self.fragments and buffer not in self.layouts


def _passed_on(stmts: Sequence[Stmt]) -> set[Var]:
    """Tiles of 16 bits that loops write from what products leave, and that loops alone use: in rows one
    behind the other, lanes that have a column of eight rows would meet in the same banks."""
    loops = [stmt for stmt in stmts if isinstance(stmt, Parallel)]
    inside = {inner for loop in loops for inner in walk((loop,))}
    others = (stmt for stmt in stmts if stmt not in inside and not isinstance(stmt, Alloc))
    named = {buffer for stmt in others for buffer in buffers(stmt)}
    held = held_alike(loops, sums_in(stmts))
    made = {
        item.buffer
        for loop in loops
        if any(other.buffer in held for other in accesses(loop.body))
        for item in accesses(loop.body)
        if item.is_write
    }
    return {
        tile for tile in made - named if tile.scope() == "shared.dyn" and element_bytes(str(tile.dtype)) == 2
    }


def _is_wide(fragment: Var) -> bool:
    """Whether a fragment has more than one axis."""
    return sum(extent != 1 for extent in static_extents(fragment)) > 1


def _brings_rows(load: BoxLoad) -> bool:
    """Whether a load brings more than a vector."""
    return sum(int_value(extent) != 1 for extent in load.dst.extent) > 1


def _is_loop(stmt: Stmt) -> bool:
    return isinstance(stmt, Parallel) and len(stmt.vars) > 1


def _work(stmt: Parallel | Reduce) -> int:
    """How many elements a loop or a reduction visits."""
    if isinstance(stmt, Parallel):
        return math.prod(loop_extents(stmt))
    return math.prod(static_extents(stmt.src.buffer))


@dataclass
class _Team:
    """Warps that work together, and all statements of theirs that are not inside a Parallel."""

    warps: int
    stmts: list[Stmt] = field(default_factory=list)

    @cached_property
    def used(self) -> set[Var]:
        """The tiles that their statements name."""
        named = (walk((stmt,)) if isinstance(stmt, Parallel) else (stmt,) for stmt in self.stmts)
        inside = (stmt for part in named for stmt in part if not isinstance(stmt, Alloc))
        return {buffer for stmt in inside for buffer in buffers(stmt)}


def _holders(fragment: Var, teams: Mapping[tuple[int, int] | None, _Team], warps: int) -> int:
    """The warps that hold a fragment: those of the group that it belongs to, else all."""
    return min((team.warps for team in teams.values() if fragment in team.used), default=warps)


def _teams(block: Block, warps: int) -> dict[tuple[int, int] | None, _Team]:
    """The teams of a launch: of each group, by its threads, and of the whole block (None)."""
    found: dict[tuple[int, int] | None, _Team] = {}

    def visit(inner: Block, key: tuple[int, int] | None, count: int) -> None:
        for stmt in inner:
            found.setdefault(key, _Team(count)).stmts.append(stmt)
            own = (stmt.first, stmt.count) if isinstance(stmt, Group) else key
            for part in () if isinstance(stmt, Parallel) else children(stmt):
                visit(part, own, team_warps(stmt, count))

    visit(block, None, warps)
    return found
