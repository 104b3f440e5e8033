"""Device code of sums that leave the tensor core after every trip, times factors of rows and columns, if any.

Where registers and stages allow, the products of two trips are issued at once, so that those of the second
run while the sums of the first are added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.wgmma import ROWS
from tilec.backends.cuda.matmul.promotion import Promotion
from tilec.backends.cuda.warp_roles.build import i32, let, pin, ptx, put, registers, when
from tilec.backends.cuda.warp_roles.load_ahead import Lane

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.matmul.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import RingDrain, WarpgroupGemm
    from tilec.backends.cuda.warp_roles.nodes import WarpgroupTile

#: Registers that a consumer needs beside its sums, and the most that it can have.
_OTHER, _MOST = 40, 232


class Promoter:
    """The sums of a tile, from trip ``first`` on. ``issue`` starts the products of the next trip into a set
    of registers and gives the stage that they read, ``release`` gives a stage back."""

    def __init__(
        self,
        stmt: RingDrain,
        gemm: WarpgroupGemm,
        ctx: MatmulContext,
        first: Expr,
        issue: Callable[[Var], Expr],
        release: Callable[[Expr], None],
    ) -> None:
        scaled = next((inner for inner in stmt.body if isinstance(inner, Promotion)), None)
        self._count = gemm.tile.rows * gemm.tile.columns // 2
        self._sums = ctx.held[gemm.c.buffer]
        self._issue, self._release = issue, release
        ahead = 2 if stmt.ring.stages > 1 and 3 * self._count + _OTHER <= _MOST else 1
        self._factors = Factors(scaled, gemm.tile, ahead, first, ctx)
        self._parts = [registers(self._count, "float32") for _ in range(ahead)]

    def drain(self, trips: Expr) -> None:
        """All trips."""
        self._factors.fetch(i32(0), len(self._parts))
        for register in range(self._count):
            put(self._sums, tirx.const(0.0, "float32"), register)
        ahead = len(self._parts)
        options = {"annotations": {"disable_unroll": True}}
        with T.serial(i32(0), T.truncdiv(trips, i32(ahead)), **options) as turn:
            self._trips(turn * ahead, ahead)
        if ahead > 1:
            with when(tirx.EQ(T.truncmod(trips, i32(ahead)), i32(1))):
                self._trips(trips - 1, 1)

    def _trips(self, first: Expr, count: int) -> None:
        """Issues the products of some trips, then adds up one after the other. No branch may stand between
        products and the wait for them: factors are loaded before, or behind the sums of two trips (4096^3 on
        an H200: 118 us so, 122 before; of one trip 138 and 122). Between products and the wait, as predicated
        loads, they cost more: 128 us in place of 121, of one trip 142 in place of 126."""
        factors, together = self._factors.take(count), len(self._parts) > 1
        if not together:
            self._factors.fetch(first + count, 1)
        stages = [self._issue(self._parts[number]) for number in range(count)]
        for number in range(count):
            part = self._parts[number]
            ptx("wgmma.wait_group.sync.aligned", count - 1 - number)
            pin(part, self._count)
            self._release(stages[number])
            for register in range(self._count):
                scaled = self._factors.of(register, factors[number], part[register])
                put(self._sums, self._sums[register] + scaled, register)
        if together:
            self._factors.fetch(first + count, len(self._parts))


class Factors:
    """The factors of the elements that this thread holds, loaded some trips before they are used: those of
    its rows, by half of each block of 64, then those of runs of columns. Trips count from ``first``."""

    def __init__(
        self, stmt: Promotion | None, tile: WarpgroupTile, ahead: int, first: Expr, ctx: MatmulContext
    ) -> None:
        self._stmt, self._tile, self._first, self._ctx = stmt, tile, first, ctx
        self._halves = 0 if stmt is None else 2 * tile.rows
        self._runs = tile.columns // stmt.run if stmt is not None and stmt.run else 0
        self._count = self._halves + self._runs
        self._lane = None if stmt is None else Lane(ctx)
        self._next = registers(max(self._count * ahead, 1), "float32")

    def fetch(self, trip: Expr, count: int) -> None:
        """Starts to load those of ``count`` trips from ``trip`` on."""
        if self._stmt is None:
            return
        stmt, ctx = self._stmt, self._ctx
        ctx.facts.bind_range(stmt.row, 0, self._tile.rows * ROWS * ctx.roles.sharers)
        ctx.facts.bind_range(stmt.column, 0, self._tile.columns)
        for number in range(count * self._count):
            later, which = divmod(number, self._count)
            with ctx.scope({stmt.trip: self._trip(trip + later), **self._place(which)}):
                factor = ctx.value(stmt.factors[which >= self._halves])
            if ctx.present is not None:
                factor = tirx.if_then_else(ctx.present, factor, tirx.const(0.0, "float32"))
            put(self._next, factor, number)

    def _trip(self, number: Expr) -> Expr:
        """The loop variable of a trip of this block."""
        assert self._stmt is not None
        start = self._ctx.value(self._stmt.start)
        return start + number if self._ctx.order.split == 1 else start + self._first + number

    def _place(self, which: int) -> dict[Var, Expr]:
        """The row or the column that a factor is of."""
        assert self._stmt is not None
        assert self._lane is not None
        if which >= self._halves:
            return {self._stmt.column: i32((which - self._halves) * self._stmt.run)}
        first = self._ctx.share * (self._tile.rows * ROWS) + self._lane.row
        return {self._stmt.row: first + i32(which // 2 * ROWS + which % 2 * 8)}

    def take(self, count: int) -> list[list[Expr]]:
        """Those of the next ``count`` trips, by half and run; nothing where sums are added as they are."""
        return [self._products(trip * self._count) for trip in range(count)]

    def _products(self, first: int) -> list[Expr]:
        """The factors of a trip: of the first half all runs, and so on."""
        rows = [self._next[first + half] for half in range(self._halves)]
        if not self._runs:
            return [let("factor", row) for row in rows]
        columns = [let("of_run", self._next[first + self._halves + run]) for run in range(self._runs)]
        return [let("factor", row * column) for row in rows for column in columns]

    def of(self, register: int, factors: list[Expr], value: Expr) -> Expr:
        """``value`` of a register of the tile times its factor."""
        if not factors:
            return value
        block, rest = divmod(register, self._tile.columns // 2)
        half, runs = 2 * block + rest % 4 // 2, max(self._runs, 1)
        return value * factors[half * runs + rest * 2 * runs // self._tile.columns]
