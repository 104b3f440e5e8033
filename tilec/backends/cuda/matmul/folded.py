"""The three launches of a product whose second operand, stored across K, comes in groups of its rows.

TMA wants rows, and the columns that a box starts at, at multiples of 16 bytes. Of a contiguous matrix (K, N)
of 16 bits eight rows together begin at one, however long they are. So it is also a matrix (K / 8, 8 N) whose
rows TMA takes: the r-th row of a group begins r N elements into it, at most seven behind a place where boxes
may start. Rows with the same r make a product of their own with every eighth column of the first operand. The
columns of its result lie as many places further, and the results of all r are added where they belong. Each
element of the matrix comes once; what comes with it of the neighbouring rows makes columns that nobody reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.whole_lines import in_whole_lines, num_pieces
from tilec.backends.cuda.matmul.nodes import MatrixView
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Bind, Block, Copy, Fill, For, Launch, Parallel, Region, Store
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.parted import Parted
from tilec.lowering.passes.expand_copies import cast_to

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.match import Match

#: Rows, and columns for each row of a group, that a block brings into order; its threads.
_ROWS, _COLUMNS, _THREADS = 8, 64, 256


@dataclass(frozen=True, eq=False)
class Folded:
    """A product: its launch, its parts, the loads of both operands, and the axes of the grid that rows and
    columns of its tiles follow."""

    launch: Launch
    found: Match
    a: Copy
    b: Copy
    row_axis: int
    column_axis: int

    # ---- sizes ----

    @cached_property
    def fold(self) -> int:
        """Rows of a group: of any length they are a multiple of what TMA wants of rows."""
        return STRIDE_BYTES // element_bytes(str(self.b.src.buffer.dtype))

    @property
    def depth(self) -> Expr:
        """K."""
        return self.b.src.buffer.shape[0]

    @property
    def _rows(self) -> Expr:
        return self.a.src.buffer.shape[0]

    @property
    def _columns(self) -> Expr:
        return self.b.src.buffer.shape[1]

    @property
    def _groups(self) -> Expr:
        """Whole groups."""
        return self.depth // tirx.const(self.fold, dtype_of(self.depth))

    @property
    def _reach(self) -> Expr:
        """Columns of the result of a row of a group, which lie up to a group's rows less one further."""
        return self._columns + (self.fold - 1)

    def _first(self, part: Expr) -> Expr:
        """The element of a group at which one of its rows begins."""
        return part * self._columns

    def _tile(self, block: Sequence[Var]) -> tuple[Expr, Expr]:
        """The first element of a tile of the result."""
        rows, columns = static(self.a.dst.extent[0]), static(self.b.dst.extent[1])
        return block[self.row_axis] * rows, block[self.column_axis] * columns

    # ---- memory ----

    @cached_property
    def operand(self) -> Var:
        """The first operand: for each row of a group the columns that it multiplies, zeros behind them."""
        source = self.a.src.buffer
        return in_whole_lines(f"{source.name}_folded", source, (self.fold, self._rows, self._groups))

    @cached_property
    def parts(self) -> Var:
        """The sums of each row of a group."""
        sums = self.found.gemm.c.buffer
        return in_whole_lines(f"{sums.name}_parts", sums, (self.fold, self._rows, self._reach))

    @cached_property
    def _view(self) -> Var:
        """The second operand with a row for each whole group."""
        source = self.b.src.buffer
        shape = (self._groups, self._columns * self.fold)
        return tirx.decl_buffer(shape, str(source.dtype), f"{source.name}_folded", scope=source.scope())

    # ---- the launch in front ----

    @property
    def ordering(self) -> Launch:
        """The columns of the first operand in the order of the rows of groups."""
        source, target = self.a.src.buffer, self.operand
        stretch, band = (tirx.Var(name, dtype_of(self.depth)) for name in ("stretch", "band"))
        row, part, column = (tirx.Var(name, "int32") for name in ("row", "part", "column"))
        at, group = band * _ROWS + row, stretch * _COLUMNS + column
        element = tirx.BufferLoad(source, [at, group * self.fold + part])
        value = tirx.if_then_else(group < self._groups, element, tirx.const(0, str(source.dtype)))
        extents = (_ROWS, self.fold, _COLUMNS)
        loop = Parallel((row, part, column), extents, (Store(target, (part, at, group), value),))
        grid = (num_pieces(target.shape[2], _COLUMNS), num_pieces(self._rows, _ROWS))
        schedule = Schedule(pdl=self.launch.schedule.pdl)
        return Launch(grid, (stretch, band), (_THREADS, 1, 1), (loop,), schedule)

    # ---- the launch that multiplies ----

    @property
    def multiplying(self) -> Launch:
        """A product for each row of a group, along a last axis of the grid."""
        launch, found = self.launch, self.found
        part = tirx.Var("part", dtype_of(self._columns))
        row, column = self._tile(launch.block_vars)
        place = (part, row, column)
        one = tirx.const(1, "int32")
        depth = static(self.a.dst.extent[1])
        stop, body = num_pieces(self._groups, depth), (*self._loads(place), found.gemm)
        loop = replace(found.loop, stop=stop, body=body, stage=None, order=None)
        stored = Copy(found.gemm.c, Region(self.parts, place, (one, *found.gemm.c.extent)))
        kept = tuple(stmt for stmt in launch.body if isinstance(stmt, (Alloc, Fill)))
        grid = list(launch.grid)
        grid[self.column_axis] = num_pieces(self._reach, static(self.b.dst.extent[1]))
        made = replace(
            launch,
            grid=(*grid, self.fold),
            block_vars=(*launch.block_vars, part),
            body=(MatrixView(self._view, self.b.src.buffer), *kept, loop, stored),
            schedule=self._schedule,
        )
        return with_notes(made, [self._note])

    def _loads(self, place: tuple[Expr, Expr, Expr]) -> tuple[Copy, Copy]:
        """Those of both operands for a tile of a row of groups."""
        part, row, column = place
        step = self.found.loop.var * static(self.a.dst.extent[1])
        first = self._first(part)
        start = first - first % self.fold + column
        a = Region(self.operand, (part, row, step), (tirx.const(1, "int32"), *self.a.src.extent))
        return replace(self.a, src=a), replace(
            self.b, src=Region(self._view, (step, start), self.b.src.extent)
        )

    @property
    def _schedule(self) -> Schedule:
        """That of the launch, by the names of what stands for its operands. The launch in front writes the
        first one, which is no constant then."""
        asked, first = self.launch.schedule, str(self.operand.name)
        sides = ((self.a, self.operand), (self.b, self._view))
        names = {str(copy.src.buffer.name): str(made.name) for copy, made in sides}

        def renamed(given: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return None if given is None else tuple(names.get(name, name) for name in given)

        constant = renamed(asked.constant)
        return replace(
            asked,
            fold_k=None,
            constant=None if constant is None else tuple(name for name in constant if name != first),
            evict_first=renamed(asked.evict_first),
            evict_last=renamed(asked.evict_last),
        )

    @property
    def _note(self) -> str:
        a, b = self.a.src.buffer.name, self.b.src.buffer.name
        return (
            f"rows of {b} come in groups of {self.fold}, which begin at multiples of {STRIDE_BYTES} bytes: a"
            f" launch in front brings {a} into their order, one behind adds the sums of each row of a group"
        )

    # ---- the launch that adds ----

    @property
    def adding(self) -> Launch:
        """Adds the sums of all rows of groups and products of the rows behind the last whole one."""
        found, parts = self.found, tirx.const(self.fold, dtype_of(self._columns))
        made = Parted(self.launch, found.loop, found.gemm.c, found.tail[0], found.names, parts, self)
        return made.adding(Schedule(pdl=True), self._behind_groups)

    @property
    def buffer(self) -> Var:
        """Of the parts of sums (`tilec.lowering.parted.Places`)."""
        return self.parts

    def of(self, part: Expr, block: Sequence[Var]) -> tuple[Block, tuple[Expr, Expr, Expr]]:
        """The first element of a tile's part."""
        further = tirx.Var("further", dtype_of(part))
        row, column = self._tile(block)
        return (Bind(further, self._first(part) % self.fold),), (part, row, column + further)

    def _behind_groups(self, held: Var, block: Sequence[Var], first: Expr) -> Block:
        """Products of the rows that make no group, for the rows of a tile from ``first`` on."""
        k = tirx.Var("k", dtype_of(self.depth))
        i, j = (tirx.Var(name, "int32") for name in ("i", "j"))
        row, column = self._tile(block)
        a = tirx.BufferLoad(self.a.src.buffer, [row + first + i, k])
        b = tirx.BufferLoad(self.b.src.buffer, [k, column + j])
        dtype = str(held.dtype)
        value = tirx.BufferLoad(held, [i, j]) + cast_to(a, dtype) * cast_to(b, dtype)
        loop = Parallel((i, j), tuple(held.shape), (Store(held, (i, j), value),))
        one = tirx.const(1, dtype_of(self.depth))
        return (For("serial", k, self._groups * self.fold, self.depth, one, (loop,)),)
