"""The two launches of a product whose tiles share their K, where a grid has fewer tiles than a device blocks.

The first has an axis of ``parts`` more: each multiplies its share of the trips along K and leaves its sums in
the workspace. The second adds the parts of each tile up, one behind the other, and computes the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tvm import tirx

from tilec.ir.exprs import dtype_of, inlined, substitute
from tilec.ir.hints import Hints
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Block,
    Copy,
    Fill,
    For,
    If,
    Launch,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    Store,
)
from tilec.ir.schedule import Schedule
from tilec.ir.serial import serial_loop
from tilec.lowering.analysis.regions import static
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.rewrite import map_stmt, read_from

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Rows of a tile, and threads, of a block that adds parts up.
_ROWS, _THREADS = 8, 128
#: Tasks that a product is parted into on a CPU, as many as usual servers have cores.
HOST_TASKS = 32
#: Sums of 32 bits leave from registers.
_OF_REGISTERS = Hints(disable_tma=True)
_NOTE = "as many blocks as the device runs share the K of few tiles; a launch behind adds their sums up"


#: Statements that add to sums: by their fragment, the indices of the block that has the tile, and the row of
#: the tile that the fragment begins at.
Beside: TypeAlias = Callable[["Var", Sequence["Var"], "Expr"], Block]


class Places(Protocol):
    """Where in ``buffer``, a tensor of three axes, the parts of sums lie."""

    @property
    def buffer(self) -> Var:
        """The tensor."""

    def of(self, part: Expr, block: Sequence[Var]) -> tuple[Block, tuple[Expr, Expr, Expr]]:
        """The first element of the sums of a tile's part, behind statements that name what it is made of."""


@dataclass(frozen=True)
class Parted:
    """A product: its launch, the ``loop`` along K that adds to ``sums``, the ``epilogue`` behind it, the
    values of ``names``; how many ``parts`` its tiles have, and the ``places`` of their sums. ``kept``: what
    holds of a row, by the epilogue's first variable, of which anything is kept; None for all."""

    launch: Launch
    loop: For | Pipelined
    sums: Region
    epilogue: Parallel
    names: Mapping[Var, Expr]
    parts: Expr
    places: Places
    kept: Expr | None = None

    # ---- the launch that multiplies ----

    def multiplying(self, schedule: Schedule) -> Launch:
        """The launch with an axis of parts: each has its share of the trips."""
        launch, loop = self.launch, self.loop
        part = tirx.Var("part", dtype_of(self.parts))
        trips = loop.stop - loop.start
        ends = [loop.start + after * trips // self.parts for after in (part, part + 1)]
        named, place = self.places.of(part, launch.block_vars)
        before = launch.body[: launch.body.index(loop)]
        body = (*named, *before, replace(loop, start=ends[0], stop=ends[1]), self._stored(place))
        made = replace(
            launch,
            grid=(*launch.grid, self.parts),
            block_vars=(*launch.block_vars, part),
            body=body,
            schedule=schedule,
        )
        return with_notes(made, [_NOTE])

    def _stored(self, place: tuple[Expr, Expr, Expr]) -> Stmt:
        """Sums to their place in the workspace."""
        if self.kept is None:
            extent = (tirx.const(1, "int32"), *self.sums.extent)
            return Copy(self.sums, Region(self.places.buffer, place, extent))
        i, j = (tirx.Var(name, "int32") for name in ("i", "j"))
        tile, row, column = place
        read = tirx.BufferLoad(self.sums.buffer, [i, j])
        store = Store(self.places.buffer, (tile, row + i, column + j), read)
        kept = substitute(self.kept, {self.epilogue.vars[0]: i})
        return Parallel((i, j), tuple(self.sums.buffer.shape), (If(kept, (store,)),), _OF_REGISTERS)

    # ---- the launch that adds ----

    def adding(self, schedule: Schedule, beside: Beside = lambda *_: ()) -> Launch:
        """A launch whose blocks have some rows of a tile each. ``beside``: what else is added."""
        whole, columns = (static(extent) for extent in self.sums.extent)
        rows = gcd(whole, _ROWS)
        own = [tirx.Var(f"{var.name}_sum", dtype_of(var)) for var in self.launch.block_vars]
        slab = tirx.Var("slab", "int32")
        held = tirx.decl_buffer((rows, columns), str(self.sums.buffer.dtype), "total", scope="local.fragment")
        added = (self._added(held, own, slab), *beside(held, own, slab * held.shape[0]))
        body = (Alloc(held), _cleared(held), *added, self._finished(held, own, slab))
        grid = (*self.launch.grid, whole // rows)
        return Launch(grid, (*own, slab), (_THREADS, 1, 1), body, schedule)

    def _added(self, held: Var, own: list[Var], slab: Var) -> For:
        """All parts, one after the other."""
        part = tirx.Var("part", dtype_of(self.parts))
        i, j = (tirx.Var(name, "int32") for name in ("i", "j"))
        named, (place, first, column) = self.places.of(part, own)
        row = first + (slab * held.shape[0] + i)
        stored = tirx.BufferLoad(self.places.buffer, [place, row, column + j])
        store = Store(held, (i, j), tirx.BufferLoad(held, [i, j]) + stored)
        loop = Parallel((i, j), tuple(held.shape), self._of_kept(store, own, slab * held.shape[0] + i))
        inside = Assume(place < self.places.buffer.shape[0])
        return serial_loop(part, self.parts, (*named, inside, loop))

    def _of_kept(self, store: Store, own: list[Var], row: Expr) -> Block:
        """A store, where the row of the tile is one that is kept."""
        if self.kept is None:
            return (store,)
        places = {**dict(zip(self.launch.block_vars, own, strict=True)), self.epilogue.vars[0]: row}
        return (If(substitute(self.kept, places), (store,)),)

    def _finished(self, held: Var, own: list[Var], slab: Var) -> Stmt:
        """What a tile's sums go through, of these rows."""
        loop = self.epilogue
        i, j = loop.vars
        row = tirx.Var(str(i.name), "int32")
        places = {**dict(zip(self.launch.block_vars, own, strict=True)), i: slab * held.shape[0] + row}

        def moved(expr: Expr) -> Expr:
            expr = read_from(inlined(expr, self.names), self.sums.buffer, held, (row, j))
            return substitute(expr, places)

        return map_stmt(replace(loop, vars=(row, j), extents=tuple(held.shape)), moved)


def _cleared(held: Var) -> Fill:
    zero = tirx.const(0, "int32")
    return Fill(Region(held, (zero, zero), tuple(held.shape)), tirx.const(0, str(held.dtype)))
