"""The two launches of a product whose tiles' K is shared through the workspace: one multiplies, one adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import dtype_of, inlined, substitute
from tilec.ir.nodes import Alloc, Assume, Bind, Copy, Fill, For, Launch, Parallel, Region, Stmt, Store
from tilec.ir.schedule import Schedule
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.rewrite import map_stmt, read_from

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.match import Match

#: Rows of a tile, and threads, of a block that adds parts up.
_ROWS, _THREADS = 8, 128
_NOTE = "as many blocks as the device runs share the K of few tiles; a launch behind adds their sums up"


@dataclass(frozen=True)
class Parted:
    """A product, the parts of its launch, how many ``parts`` its tiles have, and the tensor of their ``sums``
    (place, row and column of a tile)."""

    launch: Launch
    found: Match
    parts: Expr
    sums: Var

    # ---- the launch that multiplies ----

    def multiplying(self) -> Launch:
        """The launch with an axis of parts: each has its share of the trips."""
        launch, loop = self.launch, self.found.loop
        part = tirx.Var("part", dtype_of(self.parts))
        trips = loop.stop - loop.start
        ends = [loop.start + after * trips // self.parts for after in (part, part + 1)]
        place = self._place(part, launch.block_vars)
        before = launch.body[: launch.body.index(loop)]
        body = (place, *before, replace(loop, start=ends[0], stop=ends[1]), self._stored(place.var))
        turns = launch.schedule.pingpong or False
        made = replace(
            launch,
            grid=(*launch.grid, self.parts),
            block_vars=(*launch.block_vars, part),
            body=body,
            schedule=replace(launch.schedule, pingpong=turns, pdl=False),
        )
        return with_notes(made, [_NOTE])

    def _place(self, part: Var, block: Sequence[Var]) -> Bind:
        """Where the sums of a tile's part are."""
        number: Expr = part
        for index, extent in zip(reversed(block), reversed(self.launch.grid), strict=True):
            number = number * extent + index
        return Bind(tirx.Var("place", dtype_of(number)), number)

    def _stored(self, place: Var) -> Copy:
        """A tile's sums to their place."""
        whole, zero = self.found.gemm.c, tirx.const(0, "int32")
        box = Region(self.sums, (place, zero, zero), (tirx.const(1, "int32"), *whole.extent))
        return Copy(whole, box)

    # ---- the launch that adds ----

    def adding(self) -> Launch:
        """A launch whose blocks have some rows of a tile each."""
        rows = gcd(self.found.rows, _ROWS)
        own = [tirx.Var(f"{var.name}_sum", dtype_of(var)) for var in self.launch.block_vars]
        slab = tirx.Var("slab", "int32")
        dtype = str(self.sums.dtype)
        held = tirx.decl_buffer((rows, self.found.columns), dtype, "total", scope="local.fragment")
        body = (Alloc(held), _cleared(held), self._added(held, own, slab), self._epilogue(held, own, slab))
        grid = (*self.launch.grid, self.found.rows // rows)
        return Launch(grid, (*own, slab), (_THREADS, 1, 1), body, Schedule(pdl=True))

    def _added(self, held: Var, own: list[Var], slab: Var) -> For:
        """All parts, one after the other."""
        part = tirx.Var("part", dtype_of(self.parts))
        i, j = (tirx.Var(name, "int32") for name in ("i", "j"))
        place = self._place(part, own)
        row = slab * held.shape[0] + i
        value = tirx.BufferLoad(held, [i, j]) + tirx.BufferLoad(self.sums, [place.var, row, j])
        loop = Parallel((i, j), tuple(held.shape), (Store(held, (i, j), value),))
        inside = Assume(place.var < self.sums.shape[0])
        zero, one = (tirx.const(number, dtype_of(self.parts)) for number in (0, 1))
        return For("serial", part, zero, self.parts, one, (place, inside, loop))

    def _epilogue(self, held: Var, own: list[Var], slab: Var) -> Stmt:
        """What a tile's sums go through, of these rows."""
        (loop,) = self.found.tail
        i, j = loop.vars
        row = tirx.Var(str(i.name), "int32")
        places = {**dict(zip(self.launch.block_vars, own, strict=True)), i: slab * held.shape[0] + row}

        def moved(expr: Expr) -> Expr:
            expr = read_from(inlined(expr, self.found.names), self.found.gemm.c.buffer, held, (row, j))
            return substitute(expr, places)

        return map_stmt(replace(loop, vars=(row, j), extents=tuple(held.shape)), moved)


def _cleared(held: Var) -> Fill:
    zero = tirx.const(0, "int32")
    return Fill(Region(held, (zero, zero), tuple(held.shape)), tirx.const(0, str(held.dtype)))
