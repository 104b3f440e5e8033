"""Device code of sums that are scaled after every trip: the factors of a thread's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.lowering.cuda.hopper.build import i32, let
from tilec.lowering.cuda.hopper.load_ahead import Lane
from tilec.lowering.cuda.hopper.wgmma import ROWS

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.cuda.hopper.context import Context
    from tilec.lowering.cuda.hopper.nodes import WarpgroupTile
    from tilec.lowering.cuda.hopper.promotion import Promotion


class Factors:
    """The factors of the rows that this thread holds."""

    def __init__(self, stmt: Promotion | None, tile: WarpgroupTile, ctx: Context) -> None:
        self._stmt, self._tile, self._ctx = stmt, tile, ctx
        self._lane = None if stmt is None else Lane(ctx)

    def load(self, trip: Expr) -> list[Expr]:
        """Those of one trip, by block of 64 rows and half of it; nothing where sums are added as they are."""
        if self._stmt is None or self._lane is None:
            return []
        stmt, ctx = self._stmt, self._ctx
        ctx.facts.bind_range(stmt.row, 0, self._tile.rows * ROWS * ctx.roles.sharers)
        first = ctx.share * (self._tile.rows * ROWS) + self._lane.row
        factors = []
        for half in range(2 * self._tile.rows):
            place = {stmt.row: first + i32(half // 2 * ROWS + half % 2 * 8)}
            with ctx.scope({**place, stmt.trip: ctx.expr(stmt.start) + trip}):
                factors.append(let("factor", ctx.expr(stmt.factor)))
        return factors

    def of(self, register: int, factors: list[Expr], value: Expr) -> Expr:
        """``value`` of a register of the tile times its row's factor."""
        if not factors:
            return value
        block, rest = divmod(register, self._tile.columns // 2)
        return value * factors[2 * block + rest % 4 // 2]
