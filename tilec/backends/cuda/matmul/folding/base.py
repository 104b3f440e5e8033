"""What products have in common whose second operand comes in groups of its rows, whichever way it is stored.

TMA wants rows, and the columns that a box starts at, at multiples of 16 bytes. Of a contiguous matrix of 16
bits eight rows together begin at one, however long they are: they are one row of a matrix that TMA takes. The
rows with the same place in their groups make a product of their own, along a last axis of the grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.whole_lines import num_pieces
from tilec.backends.cuda.warp_roles.tma import STRIDE_BYTES, rows_of_a_group
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Copy, Fill, Launch, Parallel, Pipelined, Region, Stmt, Store
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.roads import with_notes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.match.launch import Match

#: Rows, and columns for each row of a group, that a block brings into order; its threads.
_ROWS, _COLUMNS, _THREADS = 8, 64, 256


@dataclass(frozen=True, eq=False)
class Folding(ABC):
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
        return rows_of_a_group(self.b.src.buffer)

    @property
    def depth(self) -> Expr:
        """K."""
        return self.b.src.buffer.shape[int(self.found.gemm.trans_b)]

    @property
    def _rows(self) -> Expr:
        return self.a.src.buffer.shape[0]

    @property
    @abstractmethod
    def _groups(self) -> Expr:
        """Groups of rows that the view has."""

    def _first(self, part: Expr) -> Expr:
        """The element of a group at which one of its rows begins."""
        return part * self.b.src.buffer.shape[1]

    # ---- memory ----

    @property
    @abstractmethod
    def operand(self) -> Var:
        """What the launch in front makes of the first operand: a matrix for each row of a group."""

    @cached_property
    def view(self) -> Var:
        """The second operand with a row for each group."""
        source = self.b.src.buffer
        shape = (self._groups, source.shape[1] * self.fold)
        return tirx.decl_buffer(shape, str(source.dtype), f"{source.name}_folded", scope=source.scope())

    @property
    @abstractmethod
    def workspace(self) -> tuple[Var, ...]:
        """What launches leave to those behind."""

    # ---- launches ----

    @property
    @abstractmethod
    def multiplying(self) -> Launch:
        """A product for each row of a group, along a last axis of the grid."""

    @property
    @abstractmethod
    def launches(self) -> tuple[Launch, ...]:
        """All of them, in their order."""

    @property
    def ordering(self) -> Launch:
        """The launch in front: the first operand as each row of a group meets it."""
        target = self.operand
        stretch, band = (tirx.Var(name, dtype_of(self.depth)) for name in ("stretch", "band"))
        row, part, column = (tirx.Var(name, "int32") for name in ("row", "part", "column"))
        at, place = band * _ROWS + row, stretch * _COLUMNS + column
        extents = (_ROWS, self.fold, _COLUMNS)
        store = Store(target, (part, at, place), self._element(at, part, place))
        loop = Parallel((row, part, column), extents, (store,))
        grid = (num_pieces(target.shape[2], _COLUMNS), num_pieces(self._rows, _ROWS))
        schedule = Schedule(pdl=self.launch.schedule.pdl)
        return Launch(grid, (stretch, band), (_THREADS, 1, 1), (loop,), schedule)

    @abstractmethod
    def _element(self, row: Expr, part: Expr, place: Expr) -> Expr:
        """An element of the operand that the launch in front makes."""

    def _of_parts(
        self, part: Var, columns: Expr, views: Sequence[Stmt], loop: Pipelined, behind: Sequence[Stmt]
    ) -> Launch:
        """The launch with ``loop`` and what is ``behind`` it in place of its own, for so many ``columns`` of
        each ``part``."""
        launch = self.launch
        kept = (stmt for stmt in launch.body if isinstance(stmt, (Alloc, Fill)))
        grid = list(launch.grid)
        grid[self.column_axis] = num_pieces(columns, self._tile_columns)
        made = replace(
            launch,
            grid=(*grid, self.fold),
            block_vars=(*launch.block_vars, part),
            body=(*views, *kept, loop, *behind),
            schedule=self._schedule,
        )
        return with_notes(made, [self._note])

    def _loop(self, stop: Expr, loads: tuple[Copy, Copy]) -> Pipelined:
        """The loop along K over other loads."""
        found = self.found
        return replace(found.loop, stop=stop, body=(*loads, found.gemm), stage=None, order=None)

    # ---- tiles ----

    @property
    def _step(self) -> int:
        """Steps of K in a trip."""
        return static(self.a.dst.extent[1])

    @property
    def _tile_columns(self) -> int:
        return static(self.found.gemm.c.extent[1])

    def _tile(self, block: Sequence[Var]) -> tuple[Expr, Expr]:
        """The first element of a tile of the result."""
        rows, columns = static(self.a.dst.extent[0]), self._tile_columns
        return block[self.row_axis] * rows, block[self.column_axis] * columns

    def _load_a(self, part: Expr, row: Expr) -> Copy:
        """That of the first operand in a trip, for a row of groups."""
        start = (part, row, self.found.loop.var * self._step)
        return replace(self.a, src=Region(self.operand, start, (tirx.const(1, "int32"), *self.a.src.extent)))

    # ---- words ----

    @property
    def _schedule(self) -> Schedule:
        """That of the launch, by the names of what stands for its operands. The launch in front writes the
        first one, which is no constant then."""
        asked, first = self.launch.schedule, str(self.operand.name)
        sides = ((self.a, self.operand), (self.b, self.view))
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
            f" launch in front {self._done(str(a))}"
        )

    @abstractmethod
    def _done(self, first: str) -> str:
        """What the launch in front does with the operand ``first``, and what else there is."""
