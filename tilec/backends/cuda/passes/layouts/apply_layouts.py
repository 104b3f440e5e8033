"""Statements with the layouts that inference found, and copies through shared memory where threads differ.

    for i in parallel(2048): Y[i] = f[i]    ->    for i in threads(2048, layout=.., vector=8): Y[i] = f[i]

A loop whose threads do not have the elements of a fragment that it names reads a copy of the fragment in a
shared tile; one that writes such a fragment writes the tile, which its holders read behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import team_warps
from tilec.backends.cuda.analysis.layouts.fragments import WARP, coalesced, operand_layout
from tilec.backends.cuda.analysis.layouts.loops import (
    fits,
    fitting_fragment,
    loop_extents,
    loop_layout,
    overwrites,
    repeated_write,
)
from tilec.backends.cuda.analysis.layouts.tiles import (
    alike,
    every_element,
    is_whole,
    result_layout,
    slices_of,
    static_extents,
    whole_tile,
)
from tilec.backends.cuda.analysis.layouts.uniform import is_everywhere, staged_scalars
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.analysis.products.wgmma import operand_in_memory, sums_layout
from tilec.backends.cuda.nodes import (
    AsyncGather,
    BlockReduce,
    BlockScan,
    EndLoop,
    EndThreadLoop,
    RaggedLoop,
    RaggedThreadLoop,
    ThreadLoop,
    WarpGemm,
)
from tilec.errors import UnsupportedError
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import canonical, terms, thread_terms
from tilec.ir.nodes import (
    Alloc,
    Atomic,
    Block,
    Copy,
    Parallel,
    Reduce,
    Region,
    Rest,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import accesses
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.analysis.added_sums import where_added
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.backends.cuda.analysis.accesses.loop_widths import VectorWidths


@dataclass(eq=False)
class LayoutRewrite:
    """Rewrites the statements of one launch.

    ``layouts`` are those of fragments and shared operands, ``loops`` those of Parallel statements (by
    identity) and ``widths`` their vector widths, ``uniformity`` tells what only some threads run, ``asked``
    which layouts are the author's. ``added`` are allocations that belong to the launch, ``sums`` the
    accumulators of products, ``zeroed`` fragments that are written in part, ``roads`` what costs more than it
    might, ``operands`` the shared tiles from which products read fragments of another layout, with that of
    the tile."""

    warps: int
    uniformity: Uniformity
    fragments: set[Var]
    layouts: dict[Var, Layout]
    loops: Mapping[Stmt, Layout]
    widths: VectorWidths
    asked: Set[Var] = frozenset()
    added: list[Alloc] = field(default_factory=list)
    sums: set[Var] = field(default_factory=set)
    zeroed: set[Var] = field(default_factory=set)
    roads: list[Road] = field(default_factory=list)
    operands: dict[tuple[Var, Layout], Var] = field(default_factory=dict)

    def launch_body(self, block: Block) -> Block:
        """The body of a launch, with the allocations that were added and the layouts of all."""
        body = self.block(block)
        return self._allocated((*self.added, *body))

    def _allocated(self, block: Block) -> Block:
        return tuple(
            self._alloc(stmt)
            if isinstance(stmt, Alloc)
            else with_children(stmt, [self._allocated(inner) for inner in children(stmt)])
            for stmt in block
        )

    def _alloc(self, stmt: Alloc) -> Alloc:
        """An allocation with its layout. What may be read before all of it is written starts as 0: padding of
        a product's sums, and fragments that go to shared memory and back for some elements."""
        layout = self.layouts.get(stmt.buffer, stmt.layout)
        padded = layout is not None and layout.shape != static_extents(stmt.buffer)
        if stmt.buffer in self.zeroed or (stmt.buffer in self.sums and padded):
            return replace(stmt, layout=layout, init=tirx.const(0, str(stmt.buffer.dtype)))
        return replace(stmt, layout=layout)

    def block(self, block: Block) -> Block:
        """The rewritten statements of a block."""
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if isinstance(stmt, Parallel):
            return self._loop(stmt)
        if isinstance(stmt, Reduce):
            return self._reduce(stmt)
        if isinstance(stmt, BlockScan):
            return [self._scan(stmt)]
        if isinstance(stmt, WarpGemm):
            return self._product(stmt)
        if isinstance(stmt, AsyncGather):
            return self._gather(stmt)
        if isinstance(stmt, Group):
            return [self._group(stmt)]
        if self.uniformity.parts(stmt) and not isinstance(stmt, Rest):
            return self._parted(stmt)
        inner = children(stmt)
        new = with_children(stmt, [self.block(block) for block in inner]) if inner else stmt
        before, new, after = staged_scalars(new, self.fragments, self.layouts, self._shared)
        self.zeroed |= {stmt.buffer} & self.fragments if isinstance(stmt, Store) else set()
        ahead = [part for copy in before for part in self._stmt(copy)]
        return [*ahead, new, *(part for copy in after for part in self._stmt(copy))]

    def _parted(self, stmt: Stmt) -> list[Stmt]:
        """What only some threads run: fragments that they name, or change, wait in shared memory."""
        inside = list(walk((stmt,)))
        written = {inner.buffer for inner in inside if isinstance(inner, Store)}
        named = {buffer: None for inner in inside for buffer in buffers(inner) if buffer in self.fragments}
        tiles = {
            buffer: self._shared(buffer)
            for buffer in named
            if buffer in written or not is_everywhere(self.layouts[buffer])
        }
        before, after = self._there_and_back(tiles, written, stmt)
        return [*before, *with_buffers((stmt,), tiles), *after]

    def _there_and_back(
        self, tiles: Mapping[Var, Var], written: set[Var], stmt: Stmt
    ) -> tuple[list[Stmt], list[Stmt]]:
        """What brings fragments to shared tiles in front of a statement, without those that it overwrites,
        and those that it has written back behind it."""
        kept = [buffer for buffer in tiles if not (isinstance(stmt, Parallel) and overwrites(stmt, buffer))]
        self.zeroed |= written & set(kept)
        before = [self._moved(buffer, tiles[buffer], stmt) for buffer in kept]
        after = [self._moved(tile, buffer, stmt) for buffer, tile in tiles.items() if buffer in written]
        return before, after

    def _group(self, stmt: Group) -> Stmt:
        """What fewer warps run, with operands of their own in shared memory."""
        whole, self.warps = self.warps, team_warps(stmt, self.warps)
        others, self.operands = self.operands, {}
        made = replace(stmt, body=self.block(stmt.body))
        self.warps, self.operands = whole, others
        return made

    def _gather(self, stmt: AsyncGather) -> list[Stmt]:
        """A gather looks up places of fragments in shared tiles, copied in front of it."""
        (store,) = stmt.body
        before, new, _ = staged_scalars(store, self.fragments, self.layouts, self._shared)
        return [*(part for copy in before for part in self._stmt(copy)), replace(stmt, body=(new,))]

    def _loop(self, loop: Parallel) -> list[Stmt]:
        layout = self.loops.get(loop) or self._late_layout(loop)
        assert all(map(int.__ge__, layout.shape, loop_extents(loop))), f"{layout} leaves iterations out"
        self._refuse_repeats(loop)
        staged: dict[Var, None] = {}
        alone = _sees_updates(loop) and not self._uses_all_threads(layout)
        for item in accesses(loop.body):
            is_held = item.buffer in self.fragments
            if not is_held:
                continue
            if (alone and item.is_write) or not fits(item, loop, layout, self.layouts[item.buffer]):
                staged[item.buffer] = None
        tiles = {buffer: self._shared(buffer) for buffer in staged}
        written = {item.buffer for item in accesses(loop.body) if item.is_write}
        before, after = self._there_and_back(tiles, written, loop)
        body = with_buffers(loop.body, tiles) if tiles else loop.body
        vector = self.widths.found.get(loop) or _late_width(loop)
        if tiles and not any(item.buffer.scope() == "global" for item in accesses(body)):
            vector = max(vector, _late_width(loop))
        if not self._uses_all_threads(layout):
            vector = max(vector, self.widths.alike.get(loop, 1))
        neighbours = _neighbours(layout)
        if neighbours > vector:
            vector = max(vector, self.widths.laid.get(loop, 1))
        vector = math.gcd(vector, neighbours)
        fields = (loop.vars, loop_extents(loop), canonical(layout), body, vector)
        if isinstance(loop, RaggedLoop):
            return [*before, RaggedThreadLoop(*fields, loop.cut, loc=loop.loc), *after]
        made = EndThreadLoop if isinstance(loop, EndLoop) else ThreadLoop
        return [*before, made(*fields, loc=loop.loc), *after]

    def _uses_all_threads(self, layout: Layout) -> bool:
        """Whether no two threads run the same iteration."""
        held = [term for axis in range(len(layout.digits)) for term in thread_terms(layout, axis)]
        return math.prod(term.size for term in held) == WARP * self.warps

    def _refuse_repeats(self, loop: Parallel) -> None:
        found = repeated_write(loop, self.fragments)
        if found is not None:
            raise UnsupportedError(
                f"several iterations of a T.Parallel loop write one element of {found.buffer.name}",
                place=place_of(loop, "T.Parallel"),
                why="accumulating across threads in a loop has no CUDA code yet",
                remedy="write to a fragment of the loop's shape and use T.reduce_sum or T.reduce_max",
            )

    def _late_layout(self, loop: Parallel) -> Layout:
        """The layout of a loop that this pass added."""
        items = [item for item in accesses(loop.body) if item.buffer in self.fragments]
        found = fitting_fragment(loop, items, self.layouts, False)
        if found is None:
            return coalesced(loop_extents(loop), self.warps, 1)
        return loop_layout(loop, found, self.layouts, self.warps, 1)

    def _shared(self, buffer: Var) -> Var:
        """A shared tile like ``buffer``."""
        shape = static_extents(buffer)
        tile = tirx.decl_buffer(shape, str(buffer.dtype), name=f"{buffer.name}_shared", scope="shared.dyn")
        self.added.append(Alloc(tile))
        return tile

    def _moved(self, source: Var, target: Var, origin: Stmt) -> Stmt:
        """The loop that copies one tile to another."""
        return self._loop(every_element(source, target, origin))[0]

    def _reduce(self, stmt: Reduce) -> list[Stmt]:
        before: list[Stmt] = []
        after: list[Stmt] = []
        src, dst = stmt.src, stmt.dst
        if any(int_value(e) is None for axis, e in enumerate(src.extent) if axis != stmt.axis):
            raise _run_time_extent(src, stmt)
        if src.buffer not in self.fragments or not is_whole(src):
            src = self._held(src, before, stmt)
        layout = result_layout(stmt, self.layouts[src.buffer])
        if (
            dst.buffer not in self.fragments
            or not is_whole(dst)
            or not alike(self.layouts[dst.buffer], layout)
        ):
            dst = self._result(dst, layout, before if not stmt.clear else None, after, stmt)
        scratch = self._scratch(src, stmt.axis, dst)
        made = BlockReduce(
            stmt.kind, src, dst, stmt.axis, stmt.clear, stmt.nan_propagate, scratch, loc=stmt.loc
        )
        return [*before, made, *after]

    def _held(self, region: Region, before: list[Stmt], origin: Reduce) -> Region:
        """A fragment with the elements of a region."""
        tile = _like(region, "held")
        self.fragments.add(tile)
        self.layouts[tile] = coalesced(static_extents(tile), self.warps, 1)
        loop = held_elements(region, tile, origin)
        before += [Alloc(tile), *(self._loop(loop) if isinstance(loop, Parallel) else self._stmt(loop))]
        return whole_tile(tile)

    def _result(
        self, region: Region, layout: Layout, before: list[Stmt] | None, after: list[Stmt], origin: Stmt
    ) -> Region:
        """A fragment of ``layout`` in place of a reduction's result elsewhere."""
        tile = _like(region, "result")
        self.fragments.add(tile)
        self.layouts[tile] = layout
        self.added.append(Alloc(tile))
        if before is not None:
            before += self._copied(Copy(region, whole_tile(tile), loc=origin.loc))
        after += self._copied(Copy(whole_tile(tile), region, loc=origin.loc))
        return whole_tile(tile)

    def _copied(self, copy: Copy) -> list[Stmt]:
        loop = expand_copy(copy)
        return self._loop(loop) if isinstance(loop, Parallel) else self._stmt(loop)

    def _scratch(self, src: Region, axis: int, dst: Region) -> Var | None:
        """Shared memory for the partial results of the warps along the axis."""
        layout = self.layouts[src.buffer]
        warps = 1
        for term in thread_terms(layout, axis):
            warps *= term.size if term.space == "warp" else 1
        if warps == 1:
            return None
        elements = 1
        for extent in self.layouts[dst.buffer].shape:
            elements *= extent
        name = f"{dst.buffer.name}_partial"
        tile = tirx.decl_buffer((warps, elements), str(dst.buffer.dtype), name=name, scope="shared.dyn")
        self.added.append(Alloc(tile))
        return tile

    def _scan(self, stmt: BlockScan) -> Stmt:
        """A scan with shared memory for the sums of warps, where there are several along its axis."""
        tile = stmt.tile.buffer
        *lines, _ = self.layouts[tile].shape
        own = terms(self.layouts[tile], len(lines))
        warps = math.prod(term.size for term in own if term.space == "warp")
        if warps == 1:
            return stmt
        pieces = math.prod(term.size for term in own if term.space == "reg" and term.weight > 1)
        shape = (pieces, warps, math.prod(lines))
        scratch = tirx.decl_buffer(shape, str(tile.dtype), name=f"{tile.name}_sums", scope="shared.dyn")
        self.added.append(Alloc(scratch))
        return replace(stmt, scratch=scratch)

    def _product(self, gemm: WarpGemm) -> list[Stmt]:
        """A product whose register operand has another layout reads it from shared memory."""
        self.sums.add(gemm.c.buffer)
        lead = ((),) * (len(gemm.c.extent) - 2)
        own = Layout((*lead, *sums_layout(gemm, slices_of(gemm.c)).digits))
        if not alike(self.layouts[gemm.c.buffer], own):
            return self._product_apart(gemm)
        if gemm.a.buffer not in self.fragments:
            return [gemm]
        lead = ((),) * (len(gemm.a.extent) - 2)
        if alike(self.layouts[gemm.a.buffer], Layout((*lead, *operand_layout(gemm.tile).digits))):
            return [gemm]
        tile = self._operand(gemm)
        moved = _by_pairs(self._moved(gemm.a.buffer, tile, gemm))
        return [moved, replace(gemm, a=replace(gemm.a, buffer=tile))]

    def _operand(self, gemm: WarpGemm) -> Var:
        """The shared tile of a fragment, written in front of each product that reads it there."""
        layout = operand_in_memory(gemm, gemm.a.buffer, False)
        tile = self.operands.get((gemm.a.buffer, layout))
        if tile is None:
            tile = self.operands[gemm.a.buffer, layout] = self._shared(gemm.a.buffer)
            self.layouts[tile] = layout
        return tile

    def _product_apart(self, gemm: WarpGemm) -> list[Stmt]:
        """A product that adds to sums in another product's layout has a fragment of its own."""
        name = str(gemm.c.buffer.name)
        loss = Loss(
            "",
            f"products of different shapes add to {name}",
            "give products that share sums the same extents and policy, or sums of their own",
        )
        if gemm.c.buffer in self.asked:
            why = f"T.annotate_layout gives {name} other places than mma.sync has for its sums"
            loss = Loss("", why, "leave it out, or copy the sums to a fragment that has this layout")
        self.roads.append(road_of(gemm, "mma.sync", "its sums go through shared memory", loss))
        tile = _like(gemm.c, "apart")
        lead = ((),) * (len(gemm.c.extent) - 2)
        self.fragments.add(tile)
        self.layouts[tile] = canonical(Layout((*lead, *sums_layout(gemm).digits)))
        self.added.append(Alloc(tile))
        sums = whole_tile(tile)
        before = where_added(gemm, self._copied(Copy(gemm.c, sums, loc=gemm.loc)))
        after = self._copied(Copy(sums, gemm.c, loc=gemm.loc))
        return [*before, *self._product(replace(gemm, c=sums)), *after]


def _neighbours(layout: Layout) -> int:
    """So many neighbours along the last axis lie in one thread."""
    first = layout.digits[-1][0] if layout.digits[-1] else None
    return first.size if first is not None and first.space == "reg" else 1


def _late_width(loop: Parallel) -> int:
    """The most elements that an access of a loop moves which this pass added, or whose fragments it has put
    into shared tiles: its rows are whole vectors, since a padded layout has elements behind their ends."""
    sizes = [element_bytes(str(item.buffer.dtype)) for item in accesses(loop.body)]
    return math.gcd(WIDEST // max(sizes, default=WIDEST), int_value(loop_extents(loop)[-1]) or 1)


def _by_pairs(copy: Stmt) -> Stmt:
    """A copy of sums, two neighbours of which a thread has side by side."""
    assert isinstance(copy, ThreadLoop)
    last = terms(copy.layout, len(copy.vars) - 1)[0]
    beside = (last.space, last.weight, last.stride, last.size) == ("reg", 1, 1, 2)
    return replace(copy, vector=2) if beside else copy


def _sees_updates(loop: Parallel) -> bool:
    """Whether an iteration asks what an atomic update found: only the thread that updates knows it."""
    return any(isinstance(stmt, Atomic) and stmt.prev is not None for stmt in walk(loop.body))


def held_elements(region: Region, tile: Var, origin: Reduce) -> Stmt:
    """The loop that fills ``tile`` with a region to be reduced; behind a run-time end along the axis stand
    elements that change nothing."""
    end = region.extent[origin.axis]
    whole = whole_tile(tile)
    copy = expand_copy(Copy(replace(region, extent=whole.extent), whole, loc=origin.loc))
    if int_value(end) is not None:
        return copy
    if not isinstance(copy, Parallel) or len(copy.vars) != len(region.extent):
        raise _run_time_extent(region, origin)
    (store,) = copy.body
    assert isinstance(store, Store)
    var = copy.vars[origin.axis]
    nothing = identity(origin.kind, str(tile.dtype))
    inside = tirx.LT(tirx.Cast(dtype_of(end), var), end)
    return replace(copy, body=(replace(store, value=tirx.Select(inside, store.value, nothing)),))


def _run_time_extent(region: Region, origin: Stmt) -> UnsupportedError:
    return UnsupportedError(
        f"a reduction over a part of {region.buffer.name} that has run-time extents beside its axis",
        place=place_of(origin),
        remedy="reduce whole tiles",
    )


def _like(region: Region, suffix: str) -> Var:
    """A fragment for the elements of a region; a run-time extent counts as the whole dimension."""
    name, dtype = f"{region.buffer.name}_{suffix}", str(region.buffer.dtype)
    pairs = zip(region.extent, static_extents(region.buffer), strict=True)
    shape = tuple(size if int_value(extent) is None else int_value(extent) for extent, size in pairs)
    return tirx.decl_buffer(shape, dtype, name=name, scope="local.fragment")
