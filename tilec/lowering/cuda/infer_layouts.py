"""Which thread holds which element of a fragment, and which thread runs which iteration of a loop.

Rules, strongest first:
1. A tensor-core product fixes its accumulator, and an A operand that is a fragment.
2. A loop takes its layout from a fragment whose indices are its variables; fragments that it indexes so take
   theirs from it.
3. A reduction's result has the layout of its source without the axis: every thread along it knows the result.
4. What is left takes the widest coalesced vectors.
5. Shared operands of products are swizzled so that reading eight rows meets no bank twice.
A statement that needs an element which another thread holds goes through shared memory, by copies that this
pass adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.errors import UnsupportedError
from tilec.ir.layout import Layout, Swizzle
from tilec.ir.layout_algebra import canonical, select, thread_terms
from tilec.ir.nodes import (
    Alloc,
    Block,
    Copy,
    Kernel,
    Launch,
    Parallel,
    Reduce,
    Region,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.lowering.cpu.accesses import Access, accesses
from tilec.lowering.cpu.accumulations import identity
from tilec.lowering.cpu.expand_copies import expand_copy
from tilec.lowering.cpu.storage import element_bytes
from tilec.lowering.cuda.fragments import accumulator_layout, coalesced, operand_layout, swizzle_width
from tilec.lowering.cuda.loops import (
    cover,
    fits,
    fitting_fragment,
    followed,
    loop_extents,
    loop_layout,
    repeated_write,
    vector_widths,
)
from tilec.lowering.cuda.nodes import BlockReduce, ThreadLoop, WarpGemm
from tilec.lowering.cuda.threads import place_of, warps_of
from tilec.lowering.cuda.uniform import staged_scalars
from tilec.lowering.cuda.versions import with_buffers
from tilec.lowering.exprs import dtype_of, int_value
from tilec.lowering.passes import rewrite_launches, with_children

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


@dataclass(frozen=True)
class InferLayouts:
    """In: Parallel, Reduce, WarpGemm over tiles without layouts. Out: ThreadLoop, BlockReduce, WarpGemm;
    every fragment and every shared operand has a layout."""

    name: str = "infer_layouts"

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
        self.widths = vector_widths(kernel, launch)
        self.layouts: dict[Var, Layout] = {}
        self.loops: dict[int, Layout] = {}
        self.added: list[Alloc] = []

    def run(self) -> Launch:
        """The launch with layouts."""
        for stmt in walk(self.launch.body):
            if isinstance(stmt, WarpGemm):
                self._anchor(stmt)
        work = [stmt for stmt in _outermost(self.launch.body) if isinstance(stmt, (Parallel, Reduce))]
        while self._propagate(work) or self._choose(work):
            pass
        for buffer in self.fragments - set(self.layouts):
            self.layouts[buffer] = coalesced(_shape(buffer), self.warps, 1)
        self.layouts = {buffer: canonical(layout) for buffer, layout in self.layouts.items()}
        body = self._block(self.launch.body)
        return replace(self.launch, body=self._allocated((*self.added, *body)))

    # ---- anchors ----

    def _anchor(self, gemm: WarpGemm) -> None:
        whole, part = gemm.c.buffer.shape[-2:], gemm.c.extent[-2:]
        slices = tuple(-(-int_value(w) // int_value(p)) for w, p in zip(whole, part, strict=True))
        lead = ((),) * (len(gemm.c.extent) - 2)
        made = accumulator_layout(gemm.tile, slices)  # type: ignore[arg-type]
        self.layouts.setdefault(gemm.c.buffer, Layout((*lead, *made.digits)))
        if gemm.a.buffer in self.fragments:
            lead = ((),) * (len(gemm.a.extent) - 2)
            self.layouts.setdefault(gemm.a.buffer, Layout((*lead, *operand_layout(gemm.tile).digits)))
        for region in (gemm.a, gemm.b):
            if region.buffer.scope() == "shared.dyn":
                self.layouts.setdefault(region.buffer, swizzled(region.buffer))

    # ---- propagation ----

    def _propagate(self, work: list[Stmt]) -> bool:
        """One round of rules 2 and 3; whether anything new is known."""
        before = len(self.layouts) + len(self.loops)
        for stmt in work:
            if isinstance(stmt, Reduce):
                self._slice(stmt)
            elif id(stmt) not in self.loops:
                self._derive(stmt, partly=False)
        return len(self.layouts) + len(self.loops) > before

    def _slice(self, stmt: Reduce) -> None:
        source = self.layouts.get(stmt.src.buffer)
        if source is None or stmt.dst.buffer not in self.fragments:
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
        self._assign(loop, loop_layout(loop, found, self.layouts, self.warps, self.widths[id(loop)]))

    def _assign(self, loop: Parallel, layout: Layout) -> None:
        self.loops[id(loop)] = layout
        for item in accesses(loop.body):
            axes = cover(item, loop)
            if item.buffer not in self.fragments or item.buffer in self.layouts or axes is None:
                continue
            extents = tuple(1 if axis is None else loop_extents(loop)[axis] for axis in axes)
            if _shape(item.buffer) == extents:
                self.layouts[item.buffer] = followed(layout, axes)

    def _choose(self, work: list[Stmt]) -> bool:
        """Rule 4 for the largest statement that nothing decides; whether there was one."""
        for stmt in sorted(work, key=_work, reverse=True):
            if isinstance(stmt, Parallel) and id(stmt) not in self.loops:
                self._derive(stmt, partly=True)
                if id(stmt) not in self.loops:
                    width = self.widths[id(stmt)]
                    self._assign(stmt, coalesced(loop_extents(stmt), self.warps, width))
                return True
            if isinstance(stmt, Reduce) and self._is_open(stmt.src.buffer):
                self.layouts[stmt.src.buffer] = coalesced(_shape(stmt.src.buffer), self.warps, 1)
                return True
        return False

    def _is_open(self, buffer: Var) -> bool:
        return buffer in self.fragments and buffer not in self.layouts

    # ---- rewriting ----

    def _allocated(self, block: Block) -> Block:
        def placed(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Alloc):
                return replace(stmt, layout=self.layouts.get(stmt.buffer, stmt.layout))
            return with_children(stmt, [self._allocated(inner) for inner in children(stmt)])

        return tuple(placed(stmt) for stmt in block)

    def _block(self, block: Block) -> Block:
        return tuple(new for stmt in block for new in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if isinstance(stmt, Parallel):
            return self._loop(stmt)
        if isinstance(stmt, Reduce):
            return self._reduce(stmt)
        if isinstance(stmt, WarpGemm):
            return self._product(stmt)
        inner = children(stmt)
        new = with_children(stmt, [self._block(block) for block in inner]) if inner else stmt
        before, new, after = staged_scalars(new, self.fragments, self.layouts, self._shared)
        ahead = [part for copy in before for part in self._stmt(copy)]
        return [*ahead, new, *(part for copy in after for part in self._stmt(copy))]

    def _loop(self, loop: Parallel) -> list[Stmt]:
        layout = self.loops.get(id(loop)) or self._late_layout(loop)
        self._refuse_repeats(loop)
        staged: dict[Var, Access] = {}
        for item in accesses(loop.body):
            if item.buffer in self.fragments and not fits(item, loop, layout, self.layouts[item.buffer]):
                staged[item.buffer] = item
        tiles = {buffer: self._shared(buffer) for buffer in staged}
        written = {item.buffer for item in accesses(loop.body) if item.is_write}
        before = [self._moved(buffer, tile, loop) for buffer, tile in tiles.items()]
        after = [self._moved(tile, buffer, loop) for buffer, tile in tiles.items() if buffer in written]
        body = with_buffers(loop.body, tiles) if tiles else loop.body
        vector = self.widths.get(id(loop), 1)
        first = layout.digits[-1][0] if layout.digits[-1] else None
        held = first.size if first is not None and first.space == "reg" else 1
        vector = math.gcd(vector, held)
        made = ThreadLoop(loop.vars, loop_extents(loop), canonical(layout), body, vector, loc=loop.loc)
        return [*before, made, *after]

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
        shape = _shape(buffer)
        tile = tirx.decl_buffer(shape, str(buffer.dtype), name=f"{buffer.name}_shared", scope="shared.dyn")
        self.added.append(Alloc(tile))
        return tile

    def _moved(self, source: Var, target: Var, origin: Stmt) -> Stmt:
        """The loop that copies one tile to another."""
        copy = expand_copy(Copy(_whole(source), _whole(target), loc=origin.loc))
        assert isinstance(copy, Parallel)
        return self._loop(copy)[0]

    def _reduce(self, stmt: Reduce) -> list[Stmt]:
        before: list[Stmt] = []
        after: list[Stmt] = []
        src, dst = stmt.src, stmt.dst
        if any(int_value(e) is None for axis, e in enumerate(src.extent) if axis != stmt.axis):
            raise _run_time_extent(src, stmt)
        if src.buffer not in self.fragments or not _is_whole(src):
            src = self._held(src, before, stmt)
        layout = result_layout(stmt, self.layouts[src.buffer])
        if (
            dst.buffer not in self.fragments
            or not _is_whole(dst)
            or not _alike(self.layouts[dst.buffer], layout)
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
        self.layouts[tile] = coalesced(_shape(tile), self.warps, 1)
        loop = held_elements(region, tile, origin)
        before += [Alloc(tile), *(self._loop(loop) if isinstance(loop, Parallel) else self._stmt(loop))]
        return _whole(tile)

    def _result(
        self, region: Region, layout: Layout, before: list[Stmt] | None, after: list[Stmt], origin: Stmt
    ) -> Region:
        """A fragment of ``layout`` in place of a reduction's result elsewhere."""
        tile = _like(region, "result")
        self.fragments.add(tile)
        self.layouts[tile] = layout
        self.added.append(Alloc(tile))
        if before is not None:
            before += self._copied(Copy(region, _whole(tile), loc=origin.loc))
        after += self._copied(Copy(_whole(tile), region, loc=origin.loc))
        return _whole(tile)

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

    def _product(self, gemm: WarpGemm) -> list[Stmt]:
        """A product whose register operand has another layout reads it from shared memory."""
        if gemm.a.buffer not in self.fragments:
            return [gemm]
        lead = ((),) * (len(gemm.a.extent) - 2)
        if _alike(self.layouts[gemm.a.buffer], Layout((*lead, *operand_layout(gemm.tile).digits))):
            return [gemm]
        tile = self._shared(gemm.a.buffer)
        self.layouts[tile] = swizzled(tile)
        return [self._moved(gemm.a.buffer, tile, gemm), replace(gemm, a=replace(gemm.a, buffer=tile))]


def result_layout(stmt: Reduce, source: Layout) -> Layout:
    """The layout of a reduction's result: without the axis, or with one element there."""
    rank = len(source.digits)
    kept = select(source, [axis for axis in range(rank) if axis != stmt.axis])
    shape = _shape(stmt.dst.buffer)
    if len(shape) == rank:
        return Layout((*kept.digits[: stmt.axis], (), *kept.digits[stmt.axis :]))
    return kept if kept.digits else Layout(((),))


def swizzled(tile: Var) -> Layout:
    """Row-major with the 16-byte chunks of a row permuted by the row."""
    shape, size = _shape(tile), element_bytes(str(tile.dtype))
    plain = Layout.row_major(shape)
    width = swizzle_width(shape[-1] * size) if shape[-1] * size % 16 == 0 else 1
    if width == 1:
        return plain
    pitch = shape[-1]
    row = 128 // size if 128 % (pitch * size) == 0 else pitch
    return Layout(plain.digits, Swizzle(width, 16 // size, row))


def _alike(left: Layout, right: Layout) -> bool:
    """Whether two layouts place every element in the same thread and register."""
    return canonical(left) == canonical(right)


def held_elements(region: Region, tile: Var, origin: Reduce) -> Stmt:
    """The loop that fills ``tile`` with a region to be reduced; behind a run-time end along the axis stand
    elements that change nothing."""
    end = region.extent[origin.axis]
    whole = _whole(tile)
    copy = expand_copy(Copy(replace(region, extent=whole.extent), whole, loc=origin.loc))
    if int_value(end) is not None:
        return copy
    if not isinstance(copy, Parallel) or len(copy.vars) != len(region.extent):
        raise _run_time_extent(region, origin)
    (store,) = copy.body
    assert isinstance(store, Store)
    var = copy.vars[origin.axis]
    nothing = identity({"absmax": "sum", "abssum": "sum"}.get(origin.kind, origin.kind), str(tile.dtype))
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
    pairs = zip(region.extent, _shape(region.buffer), strict=True)
    shape = tuple(size if int_value(extent) is None else int_value(extent) for extent, size in pairs)
    return tirx.decl_buffer(shape, dtype, name=name, scope="local.fragment")


def _whole(tile: Var) -> Region:
    shape = _shape(tile)
    return Region(tile, (tirx.const(0, "int32"),) * len(shape), shape)


def _is_whole(region: Region) -> bool:
    return all(
        int_value(start) == 0 and int_value(extent) == size
        for start, extent, size in zip(region.start, region.extent, _shape(region.buffer), strict=True)
    )


def _shape(buffer: Var) -> tuple[int, ...]:
    return tuple(int_value(extent) or 0 for extent in buffer.shape)


def _work(stmt: Stmt) -> int:
    """How many elements a loop or a reduction visits."""
    if isinstance(stmt, Parallel):
        return math.prod(loop_extents(stmt))
    return math.prod(_shape(stmt.src.buffer)) if isinstance(stmt, Reduce) else 0


def _outermost(block: Block) -> list[Stmt]:
    """All statements that are not inside a Parallel."""
    found: list[Stmt] = []
    for stmt in block:
        found.append(stmt)
        if not isinstance(stmt, Parallel):
            found += [inner for part in children(stmt) for inner in _outermost(part)]
    return found
