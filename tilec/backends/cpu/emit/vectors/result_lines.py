"""Cache lines that the work behind a product will touch, asked for while the rows before are finished.

A row of a block of results is a short piece of its tensor, mostly in a page of its own: no prefetcher of a
CPU foresees it, and stores that miss the near caches hold up the blocks behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.products.elementwise import accesses, stores
from tilec.backends.cpu.products.packing import has_unit_stride
from tilec.backends.cpu.products.tir import CACHE_LINE, kept_loop, prefetch, sequence
from tilec.ir.exprs import dtype_of, loads, uses
from tilec.ir.nodes import is_global, walk
from tilec.ir.traits import defined
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.backends.cpu.nodes import MicroGemm, RegisterBlock


class ResultLines:
    """The tensors whose rows the body of a product reads or writes along those of its sums."""

    def __init__(self, gemm: MicroGemm, ctx: LaneContext) -> None:
        self.ctx = ctx
        self.vars = gemm.vars
        self.written = {store.buffer for store in stores(gemm.body)}
        named = {var for stmt in walk(gemm.body) for var in defined(stmt)}
        self.places: dict[Var, tuple[Expr, ...]] = {}
        for buffer, indices in accesses(gemm.body):
            if _is_by_rows(buffer) and _follows(indices, gemm, named):
                self.places.setdefault(buffer, indices)

    def of(self, row: Expr, col: Expr, block: RegisterBlock) -> tirx.Stmt | None:
        """Asks for their lines of the block whose first element is (``row``, ``col``); None without such
        tensors."""

        def of_row(r: Expr) -> tirx.Stmt:
            return sequence(
                *(
                    self._asked(buffer, row + r, col + c)
                    for buffer in self.places
                    for c in _columns(block, element_bytes(str(buffer.dtype)))
                )
            )

        return kept_loop(block.rows, of_row) if self.places else None

    def _asked(self, buffer: Var, row: Expr, col: Expr) -> tirx.Stmt:
        """A prefetch into the first cache, of what is written for writing."""
        with self.ctx.scope():
            self.ctx.env.update(zip(self.vars, (row, col), strict=True))
            place = [self.ctx.value(index) for index in self.places[buffer]]
        storage = self.ctx.storage(buffer)
        where = tirx.address_of(tirx.BufferLoad(storage.data, [storage.offset(place)]))
        return prefetch(where, write=buffer in self.written)


def _columns(block: RegisterBlock, size: int) -> list[int]:
    """Columns in each line that a row may touch, which may begin anywhere in one."""
    return list(dict.fromkeys((*range(0, block.cols, CACHE_LINE // size), block.cols - 1)))


def _is_by_rows(buffer: Var) -> bool:
    return is_global(buffer) and has_unit_stride(buffer)


def _follows(indices: tuple[Expr, ...], gemm: MicroGemm, named: set[Var]) -> bool:
    """Whether ``indices`` are a row's and, last, a column of the sums but for a shift, by what is known
    before the body runs."""
    row, col = gemm.vars
    if any(uses(index, named) or next(loads(index), None) is not None for index in indices):
        return False
    *leading, last = indices
    own = tirx.Cast(dtype_of(last), col) if dtype_of(last) != dtype_of(col) else col
    shift = sym.Analyzer().simplify(last - own)
    return any(uses(index, {row}) for index in leading) and not uses(shift, {row, col})
