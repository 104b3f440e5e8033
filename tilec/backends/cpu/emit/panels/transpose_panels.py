"""TIR of `TransposePanels`: square blocks of one vector a side, transposed in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.panels.squares import named, transposed
from tilec.backends.cpu.emit.panels.store_to_panels import store_to_panels
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.nodes import TransposePanels, element
from tilec.backends.cpu.products.tir import loop, sequence, span
from tilec.lowering.analysis.regions import static
from tilec.lowering.emission.storage import convert

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext


@emit.register(TransposePanels)
def _(stmt: TransposePanels, ctx: LaneContext) -> tirx.Stmt:
    extent, lanes = stmt.src.region.extent, stmt.lanes
    depth, columns = static(extent[stmt.src.row]), static(extent[stmt.src.col])
    blocks = _Blocks(stmt, ctx)
    ctx.take(stmt, "vectors", f"square blocks of {lanes} lanes transposed in registers")
    return loop(
        columns // lanes, lambda c: loop(depth // lanes, lambda k: blocks.block(k * lanes, c * lanes))
    )


class _Blocks:
    """Emits the blocks of one statement."""

    def __init__(self, stmt: TransposePanels, ctx: LaneContext) -> None:
        self.stmt = stmt
        self.ctx = ctx

    def block(self, k: Expr, col: Expr) -> tirx.Stmt:
        """The block whose first element is ``src[k, col]``."""
        parts: list[tirx.Stmt] = []
        rows = [named(self._row(k, col + number), parts) for number in range(self.stmt.lanes)]
        columns = transposed(rows, parts)
        parts += [
            store_to_panels(self.stmt.dst, k + number, col, row, self.ctx)
            for number, row in enumerate(columns)
        ]
        return sequence(*parts)

    def _row(self, k: Expr, col: Expr) -> Expr:
        """``lanes`` elements of one column of ``src``, which lie side by side, in the type of ``dst``."""
        buffer = self.stmt.src.region.buffer
        storage = self.ctx.storage(buffer)
        place = storage.offset([self.ctx.value(part) for part in element(self.stmt.src, k, col)])
        value = self.ctx.decode(tirx.BufferLoad(storage.data, [span(place, self.stmt.lanes)]), storage.dtype)
        return convert(value, str(self.stmt.dst.buffer.dtype))
