"""Device code of sums that leave the tensor core after every trip, times factors of rows and columns, if any.

Where registers and stages allow, the products of the next trip run while the sums of one are added: two sets
of registers take turns through a run of trips. At its end all products are complete, as the assembler makes
them wait for each other where a loop goes round with some under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script import builder as T

from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.device.exchange import ANEW
from tilec.backends.cuda.matmul.match.promotion import Promotion
from tilec.backends.cuda.warp_roles.emit.build import i32, let, pin, ptx, put, registers, when
from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane
from tilec.ir.exprs import dtype_of, uses

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import RingDrain, WarpgroupGemm
    from tilec.backends.cuda.warp_roles.nodes import WarpgroupTile

#: Registers that a consumer needs beside its sums, and the most that it can have.
_OTHER, _MOST = 40, 232
#: Trips of a run with two sets of registers, a power of two. 8-bit floats with scales of blocks, 8192^3 on an
#: H200, us: runs of two 900, of four 872, of eight 953; of two and of four with the last sums added behind
#: the first products of the next run 908 and 893; of two and of four that end in the middle of the other
#: warpgroup's 961 and 930.
_RUN = 4


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
        self._together = stmt.ring.stages > 1 and 3 * self._count + _OTHER <= _MOST
        self._run = _RUN if self._together else 1
        self._factors = Factors(scaled, gemm.tile, self._run, first, ctx)
        self._parts = [registers(self._count, "float32") for _ in range(1 + self._together)]

    def drain(self, trips: Expr) -> None:
        """All trips."""
        self._factors.fetch(i32(0), self._run)
        for register in range(self._count):
            put(self._sums, tirx.const(0.0, "float32"), register)
        options = {"annotations": {"disable_unroll": True}}
        with T.serial(i32(0), T.truncdiv(trips, i32(self._run)), **options) as turn:
            self._turn(turn * self._run)
        if self._together:
            self._rest(T.truncmod(trips, i32(self._run)))

    def _turn(self, first: Expr) -> None:
        """A run of trips. No branch may stand between products and the wait for them: factors are loaded
        before, or behind the sums of a run (4096^3 on an H200, runs of two: 118 us so, 122 before; of one
        trip 138 and 122). Between products and the wait, as predicated loads, they cost more: 128 us in place
        of 121, of one trip 142 in place of 126."""
        if self._together:
            self._trips(self._run)
            self._factors.fetch(first + self._run, self._run)
            return
        factors = self._factors.take(0)
        self._factors.fetch(first + 1, 1)
        self._add(self._issue(self._parts[0]), 0, 0, factors)

    def _rest(self, left: Expr) -> None:
        """The last trips, fewer than a run, whose factors have been loaded."""
        count = self._run // 2
        while count:
            with when(T.truncmod(T.truncdiv(left, i32(count)), i32(2)) > 0):
                self._trips(count)
                self._factors.shift(count)
            count //= 2

    def _trips(self, count: int) -> None:
        """Some trips, the products of each one issued before the sums of the one before are waited for."""
        stage = self._issue(self._parts[0])
        for number in range(count):
            more = number + 1 < count
            following = self._issue(self._parts[(number + 1) % 2]) if more else stage
            self._add(stage, number % 2, int(more), self._factors.take(number))
            stage = following

    def _add(self, stage: Expr, number: int, pending: int, factors: list[Expr]) -> None:
        """Adds the sums of a trip when all but the last ``pending`` products are complete, in front of the
        products that follow: the assembler gives those further registers otherwise."""
        part = self._parts[number]
        ptx("wgmma.wait_group.sync.aligned", pending)
        pin(part, self._count)
        self._release(stage)
        for register in range(self._count):
            scaled = self._factors.of(register, factors, part[register])
            put(self._sums, self._sums[register] + scaled, register)
        if self._together:
            pin(self._sums, self._count)


class Factors:
    """The factors of the elements that this thread holds, loaded some trips before they are used: those of
    its rows, by half of each block of 64, what all rows share, then those of runs of columns. They are
    multiplied with each other where they are used: a product waits for what is loaded. Trips count from
    ``first``."""

    def __init__(
        self, stmt: Promotion | None, tile: WarpgroupTile, ahead: int, first: Expr, ctx: MatmulContext
    ) -> None:
        self._stmt, self._tile, self._first, self._ctx = stmt, tile, first, ctx
        self._of_row: Expr | None = None
        self._of_all: Expr | None = None
        if stmt is not None:
            self._of_row, self._of_all = _parted(stmt)
        self._halves = 0 if stmt is None else 2 * tile.rows
        self._shared = int(self._of_all is not None)
        self._runs = tile.columns // stmt.run if stmt is not None and stmt.run else 0
        self._count, self._ahead = self._halves + self._shared + self._runs, ahead
        self._lane = None if stmt is None else Lane(ctx)
        self._anew = {} if stmt is None else self._names_anew(stmt)
        self._none = _own_zero(self._lane) if self._lane is not None and ctx.begins_early else i32(0)
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
            value, place = self._loaded(which)
            with ctx.scope({stmt.trip: self._trip(trip + later), **place}):
                factor = self._value(value)
            if ctx.present is not None:
                factor = tirx.if_then_else(ctx.present, factor, tirx.const(0.0, "float32"))
            put(self._next, factor, number)

    def _value(self, factor: Expr) -> Expr:
        """A factor. The test whether it lies inside says nothing of its place: the compiler would compute
        that in each trip, beside what it knows there (200 x 14336 x 4096 on an H200: 572 instructions in four
        trips, 525 so)."""
        if not isinstance(factor, TensorLoad):
            return self._ctx.value(factor)
        assert self._stmt is not None
        trip = self._stmt.trip
        with self._ctx.scope({**self._anew, trip: self._ctx.env[trip] + self._none}):
            place = self._ctx.flat_index(factor.source, tuple(factor.indices))
        return self._ctx.element(factor, place)

    def _names_anew(self, stmt: Promotion) -> dict[Var, Expr]:
        """The names of a tile that places of factors are made of, as numbers of which nothing is known."""
        ctx = self._ctx
        used = dict.fromkeys(var for factor in stmt.factors for var in undefined_vars(factor))
        names = {var: ctx.env[var] for var in used if var in ctx.env and not ctx.facts.is_dim(var)}
        return {
            var: let(f"{var.name}_anew", ANEW.call(value))
            for var, value in names.items()
            if isinstance(value, Var) and dtype_of(value) == "int32"
        }

    def _trip(self, number: Expr) -> Expr:
        """The loop variable of a trip of this block."""
        assert self._stmt is not None
        start = self._ctx.value(self._stmt.start)
        return start + number if self._ctx.order.split == 1 else start + self._first + number

    def _loaded(self, which: int) -> tuple[Expr, dict[Var, Expr]]:
        """What a register of a trip holds, and the row or the column that it is of."""
        assert self._stmt is not None
        assert self._lane is not None
        run = which - self._halves - self._shared
        if run >= 0:
            return self._stmt.factors[1], {self._stmt.column: i32(run * self._stmt.run)}
        if which >= self._halves:
            assert self._of_all is not None
            return self._of_all, {}
        assert self._of_row is not None
        first = self._ctx.share * (self._tile.rows * ROWS) + self._lane.row
        return self._of_row, {self._stmt.row: first + i32(which // 2 * ROWS + which % 2 * 8)}

    def shift(self, trips: int) -> None:
        """Those loaded for later trips are the first ones."""
        for number in range((self._ahead - trips) * self._count):
            put(self._next, self._next[number + trips * self._count], number)

    def take(self, trip: int) -> list[Expr]:
        """Those of a trip that has been loaded: of the first half all runs, and so on; nothing where sums are
        added as they are."""
        held = [self._next[trip * self._count + number] for number in range(self._count)]
        rows, shared = held[: self._halves], held[self._halves : self._count - self._runs]
        runs = held[self._count - self._runs :]
        rows = [row * each for row in rows for each in shared] if shared else rows
        if not runs:
            return [let("factor", row) for row in rows]
        columns = [let("of_run", run) for run in runs]
        return [let("factor", row * column) for row in rows for column in columns]

    def of(self, register: int, factors: list[Expr], value: Expr) -> Expr:
        """``value`` of a register of the tile times its factor."""
        if not factors:
            return value
        block, rest = divmod(register, self._tile.columns // 2)
        half, runs = 2 * block + rest % 4 // 2, max(self._runs, 1)
        return value * factors[half * runs + rest * 2 * runs // self._tile.columns]


def _own_zero(lane: Lane) -> Expr:
    """0, of which the assembler does not know that all lanes have it. It brings what a warp loads from one
    place to a uniform register, and waits for that in front of the next product where loads may not be moved
    behind it, as in launches that begin early: 8192^3 in tiles of 128 x 128 on an H200 takes 1081 us so, 1016
    with trips that are each lane's own (1070 with that added to places). Where loads may be moved, tiles of
    128 x 192 take 1026 for 997."""
    return let("own_zero", tirx.shift_right(ANEW.call(lane.row), i32(6)))


def _parted(stmt: Promotion) -> tuple[Expr, Expr | None]:
    """The factor of a row, and what it is multiplied with if that is the same for all rows."""
    value = stmt.factors[0]
    if isinstance(value, tirx.Mul):
        for own, shared in ((value.a, value.b), (value.b, value.a)):
            if uses(own, (stmt.row,)) and not uses(shared, (stmt.row,)):
                return own, shared
    return value, None
