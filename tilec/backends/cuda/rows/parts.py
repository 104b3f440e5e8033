"""A launch in which each block of a cluster has a part of the columns of a row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.blocks.long_tiles import on_chip
from tilec.backends.cuda.rows.meeting import MEET, Meeting
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.exprs import cast_to, dtype_of, inlined, int_value, transform
from tilec.ir.nodes import (
    LOOPS,
    Atomic,
    Block,
    Break,
    Continue,
    Copy,
    Fill,
    If,
    Launch,
    Parallel,
    Reduce,
    Region,
    Scan,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.traits import Rewriter, loads_of, written
from tilec.lowering.analysis.regions import static
from tilec.lowering.passes.expand_copies import is_single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Expr

    from tilec.backends.cuda.rows.columns import RowColumns

#: A tile, the axis of its columns, one of them.
Place: TypeAlias = "tuple[Var, int, int]"


class Parts(Rewriter):
    """A launch for several blocks in place of each of its blocks."""

    def __init__(self, launch: Launch, found: RowColumns) -> None:
        super().__init__()
        self._launch, self._found, self._parts = launch, found, found.parts
        self._columns = found.columns
        first, *_ = launch.block_vars
        self._block = Var(f"{first.name}_part", dtype_of(first))
        count = tirx.const(found.parts, dtype_of(first))
        self._rank = tirx.floormod(self._block, count)
        self._values = {first: tirx.floordiv(self._block, count)}
        own = [(var, found.size((var, number))) for var, number in self._columns if number < 0]
        self._values |= {var: self._moved(var, size) for var, size in own}
        self._tiles = {buffer: self._part_of(buffer) for buffer, number in self._columns if number >= 0}
        self._meeting = Meeting(found.parts, self._rank)
        self._within = False
        self._rooms: dict[Place, Var] = {}

    def launch(self) -> Launch:
        """The launch of clusters."""
        launch, parts = self._launch, self._parts
        body = self.block(launch.body)
        schedule = replace(launch.schedule, cluster_dims=parts)
        note = f"split_row: {parts} blocks of a cluster share the columns of a tile"
        return replace(
            launch,
            grid=(launch.grid[0] * parts, *launch.grid[1:]),
            block_vars=(self._block, *launch.block_vars[1:]),
            body=(*self._meeting.tiles, *body),
            schedule=schedule,
            notes=(*launch.notes, note),
        )

    # ---- places ----

    def _moved(self, place: Expr, size: int) -> Expr:
        """A column of a block's part as one of the row."""
        dtype = dtype_of(place)
        return cast_to(self._rank, dtype) * tirx.const(size // self._parts, dtype) + place

    def _part_of(self, buffer: Var) -> Var:
        shape = [
            extent if (buffer, number) not in self._columns else static(extent) // self._parts
            for number, extent in enumerate(buffer.shape)
        ]
        return tirx.decl_buffer(shape, str(buffer.dtype), str(buffer.name), scope=buffer.scope())

    def expr(self, expr: Expr) -> Expr:
        """A value, of the columns of a block."""
        return transform(expr, self._node)

    def _node(self, node: Expr) -> Expr | None:
        place = self._place(node)
        if place is not None:
            return self._told(place, tuple(node.indices))
        if isinstance(node, TensorLoad) and node.source in self._tiles:
            return tirx.BufferLoad(self._tiles[node.source], list(self._at(node.source, node.indices)))
        return self._values.get(node) if isinstance(node, Var) else None

    def _place(self, node: Expr) -> Place | None:
        """The column of a tile that an element is read of, where it is known."""
        if not isinstance(node, TensorLoad) or node.source not in self._tiles:
            return None
        for number, index in enumerate(node.indices):
            column = int_value(inlined(index, self._found.names))
            if (node.source, number) in self._columns and column is not None:
                return node.source, number, column
        return None

    def _told(self, place: Place, indices: tuple[Expr, ...]) -> Expr:
        """What the block that has a column has told."""
        buffer, number, column = place
        rest = [self.expr(index) for axis, index in enumerate(indices) if axis != number]
        block = column // (self._found.size((buffer, number)) // self._parts)
        zero, at = (tirx.const(value, "int32") for value in (0, block))
        return tirx.BufferLoad(self._rooms[place], [*(rest or [zero]), at])

    def _at(self, buffer: Var, indices: tuple[Expr, ...]) -> Iterator[Expr]:
        """Indices of a part of a tile."""
        for number, index in enumerate(indices):
            own = (buffer, number) in self._columns
            yield inlined(index, self._found.names) if own else self.expr(index)

    def buffer(self, buffer: Var) -> Var:
        """The part that a block has of a tile."""
        return self._tiles.get(buffer, buffer)

    def defined(self, var: Var) -> Var:
        """What an Alloc makes is a part, too."""
        return self._tiles.get(var, var)

    def region(self, region: Region) -> Region:
        """All of a tile is all of a part."""
        made = super().region(region)
        return replace(made, extent=tuple(self._extents(region)))

    def _extents(self, region: Region) -> Iterator[int | Expr]:
        for number, extent in enumerate(region.extent):
            if (region.buffer, number) in self._columns:
                yield static(region.buffer.shape[number]) // self._parts
            else:
                yield extent if isinstance(extent, int) else self.expr(extent)

    # ---- statements ----

    def stmts(self, stmt: Stmt) -> Block:
        """A statement for one block, behind those that tell all blocks what it reads of one column."""
        asked = {place: None for place in self._asked(stmt) if place not in self._rooms}
        need(not asked or not isinstance(stmt, (If, *LOOPS)), "a branch or a loop reads a known column", stmt)
        told: list[Stmt] = []
        for buffer, number, column in asked:
            column_of_part = column % (self._found.size((buffer, number)) // self._parts)
            room, meeting = self._meeting.element(self._tiles[buffer], number, column_of_part, stmt)
            self._rooms[buffer, number, column] = room
            told += meeting
        made = self._one(stmt)
        for place in asked:
            del self._rooms[place]
        return (*told, *made)

    def _asked(self, stmt: Stmt) -> Iterator[Place]:
        """The known columns that a statement reads, without those inside of a branch or a loop."""
        inside = (stmt,) if isinstance(stmt, (If, *LOOPS)) else walk((stmt,))
        read = loads_of(*inside)
        return (place for load in read if (place := self._place(load)) is not None)

    def _one(self, stmt: Stmt) -> Block:
        if not self._within and self._leaves(stmt):
            first = tirx.EQ(self._rank, tirx.const(0, dtype_of(self._rank)))
            self._within = True
            inner = self._inside(stmt)
            self._within = False
            return (If(first, inner, loc=stmt.loc),)
        if isinstance(stmt, (Reduce, Scan)) and self._is_shared(stmt):
            here = replace(stmt, src=self.region(stmt.src), dst=self.region(stmt.dst))
            return self._meeting.reduced(here) if isinstance(here, Reduce) else self._meeting.scanned(here)
        if isinstance(stmt, LOOPS):
            return (self._trips(stmt),)
        return self._inside(stmt)

    def _inside(self, stmt: Stmt) -> Block:
        """A statement over the columns of a block."""
        before = self._within
        self._within = before or self._goes_along(stmt)
        made = self._rewritten(stmt)
        self._within = before
        return (made,)

    def _rewritten(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, (Copy, Fill)):
            return self._copied(stmt)
        if isinstance(stmt, (Store, Atomic)):
            at = tuple(self._at(stmt.buffer, stmt.indices))
            return replace(stmt, buffer=self.buffer(stmt.buffer), indices=at, value=self.expr(stmt.value))
        made = super().stmt(stmt)
        if isinstance(stmt, Parallel):
            assert isinstance(made, Parallel)
            return replace(made, extents=self._counts(stmt))
        return made

    def _counts(self, loop: Parallel) -> tuple[int | Expr, ...]:
        """The extents of a loop for one block."""
        counts = zip(loop.vars, loop.extents, strict=True)
        return tuple(
            self._found.size((var, -1)) // self._parts if (var, -1) in self._columns else count
            for var, count in counts
        )

    def _goes_along(self, stmt: Stmt) -> bool:
        """Whether a statement has other elements in each block."""
        own = stmt.vars if isinstance(stmt, Parallel) else self._found.copies.get(stmt, ())
        return any((var, -1) in self._columns for var in own)

    def _leaves(self, stmt: Stmt) -> bool:
        """Whether all blocks would leave the same in tensors."""
        if self._goes_along(stmt) or not isinstance(stmt, (Parallel, Store, Atomic, Copy, Fill)):
            return False
        results = [buffer for inner in walk((stmt,)) for buffer in written(inner)]
        alike = not any(map(self._goes_along, walk((stmt,))))
        return bool(results) and alike and not any(map(on_chip, results))

    def _copied(self, stmt: Copy | Fill) -> Stmt:
        """A copy or a fill of a block's columns."""
        own = self._found.copies[stmt]
        dst = self._moved_region(stmt.dst, own)
        if isinstance(stmt, Fill):
            return replace(stmt, dst=dst, value=self.expr(stmt.value))
        return replace(stmt, src=self._moved_region(stmt.src, own), dst=dst)

    def _moved_region(self, region: Region, own: tuple[Var, ...]) -> Region:
        """A part of a tensor, of a block's columns."""
        made, left = self.region(region), iter(own)
        if on_chip(region.buffer):
            return made
        start, extent = list(made.start), list(made.extent)
        for number, count in enumerate(region.extent):
            var = None if is_single(count) else next(left, None)
            if var is None or (var, -1) not in self._columns:
                continue
            size = self._found.size((var, -1))
            start[number] = self._moved(start[number], size)
            extent[number] = size // self._parts
        return replace(made, start=tuple(start), extent=tuple(extent))

    def _trips(self, loop: Stmt) -> Stmt:
        """A loop whose blocks meet twice in a trip at least, if they do: what one trip tells the others has
        been read when the next one does."""
        (made,) = self._inside(loop)
        (body,) = children(loop)
        if not any(map(self._meets, walk(body))):
            return made
        leaves = next((stmt for stmt in walk(body) if isinstance(stmt, (Break, Continue))), None)
        need(leaves is None, "blocks of a cluster meet in a loop that may be left in between", leaves)
        if sum(map(self._meets, body)) > 1:
            return made
        return with_children(made, [(*children(made)[0], *MEET)])

    def _meets(self, stmt: Stmt) -> bool:
        """Whether blocks tell each other something for a statement."""
        shared = isinstance(stmt, (Reduce, Scan)) and self._is_shared(stmt)
        return shared or any(True for _ in self._asked(stmt))

    def _is_shared(self, stmt: Reduce | Scan) -> bool:
        """Whether what is reduced has a part in each block."""
        return (stmt.src.buffer, stmt.axis) in self._columns
