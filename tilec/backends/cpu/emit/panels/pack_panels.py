"""TIR of `PackPanels`: row by row of the source, so that it is read as it lies in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.first_lanes import first_lanes, has_first_lanes
from tilec.backends.cpu.nodes import PackPanels, element
from tilec.backends.cpu.products.tir import index, loop, sequence, span, trips_of, unrolled
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert
from tilec.lowering.math.vectors import literal

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(PackPanels)
def _(stmt: PackPanels, ctx: LaneContext) -> tirx.Stmt:
    ctx.take(stmt, "vectors", f"panels packed in vectors of {stmt.lanes} lanes")
    return _Panels(stmt, ctx).all()


class _Panels:
    """Emits the loops of one statement. ``columns`` is how many there are."""

    def __init__(self, stmt: PackPanels, ctx: LaneContext) -> None:
        self.stmt = stmt
        self.ctx = ctx
        self.width = static(stmt.dst.extent[-1])
        self.columns = tirx.Var("columns", "int32")

    def all(self) -> tirx.Stmt:
        """Whole panels, then the one that is not."""
        rows, whole = tirx.Var("rows", "int32"), tirx.truncdiv(self.columns, index(self.width))
        rest = self.columns - whole * self.width
        return sequence(
            tirx.Bind(self.columns, trips_of(self._value(self.stmt.columns))),
            tirx.Bind(rows, trips_of(self._value(self.stmt.rows))),
            loop(whole, lambda panel: loop(rows, lambda k: self._whole(panel, k))),
            tirx.IfThenElse(rest > 0, loop(rows, lambda k: self._part(whole, k, rest)), None),
        )

    def _value(self, count: int | Expr) -> int | Expr:
        return count if isinstance(count, int) else self.ctx.value(count)

    def _whole(self, panel: Expr, k: Expr) -> tirx.Stmt:
        lanes = self.stmt.lanes

        def moved(vector: Expr) -> tirx.Stmt:
            at = vector * lanes
            return self._write(panel, k, at, self._read(k, panel * self.width + at, lanes))

        return unrolled(self.width // lanes, moved)

    def _part(self, panel: Expr, k: Expr, rest: Expr) -> tirx.Stmt:
        """``rest`` columns and zeros behind them: by masks, or one column after the other."""
        lanes = self.stmt.lanes
        if has_first_lanes(self.ctx.target, self.ctx.storage(self.stmt.src.region.buffer).dtype):
            return unrolled(self.width // lanes, lambda v: self._first(panel, k, v * lanes, rest))
        zero = literal(0, str(self.stmt.dst.buffer.dtype), lanes)
        return sequence(
            unrolled(self.width // lanes, lambda v: self._write(panel, k, v * lanes, zero)),
            loop(rest, lambda c: self._write(panel, k, c, self._read(k, panel * self.width + c, 1))),
        )

    def _first(self, panel: Expr, k: Expr, at: Expr, rest: Expr) -> tirx.Stmt:
        """The vector ``at`` of a row of a panel that has ``rest`` columns."""
        storage, lanes = self.ctx.storage(self.stmt.src.region.buffer), self.stmt.lanes
        place = tirx.address_of(tirx.BufferLoad(storage.data, [self._offset(k, panel * self.width + at)]))
        value = first_lanes(place, rest - at, storage.dtype, lanes, self.ctx.functions)
        return self._write(panel, k, at, convert(value, str(self.stmt.dst.buffer.dtype)))

    def _read(self, k: Expr, col: Expr, lanes: int) -> Expr:
        storage = self.ctx.storage(self.stmt.src.region.buffer)
        value = self.ctx.decode(
            tirx.BufferLoad(storage.data, [span(self._offset(k, col), lanes)]), storage.dtype
        )
        return convert(value, str(self.stmt.dst.buffer.dtype))

    def _offset(self, k: Expr, col: Expr) -> Expr:
        """Where an element of the source lies."""
        indices = [self.ctx.value(part) for part in element(self.stmt.src, k, col)]
        return self.ctx.storage(self.stmt.src.region.buffer).offset(indices)

    def _write(self, panel: Expr, k: Expr, at: Expr, value: Expr) -> tirx.Stmt:
        storage = self.ctx.storage(self.stmt.dst.buffer)
        lanes = value.ty.dtype.lanes
        return tirx.BufferStore(storage.data, value, [span(storage.offset([panel, k, at]), lanes)])
