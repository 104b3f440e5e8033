"""Along which axis of a grid blocks take longer or shorter: those that multiply in more trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.nodes import WarpgroupProduct
from tilec.ir.exprs import as_expr, dtype_of, int_value, substitute
from tilec.ir.nodes import LOOPS, Block, If, Launch, Stmt, children, walk
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What dims are taken for: many tiles along each axis.
_DIM = 4096
#: Products that the longest block has more than the shortest, at the least: short blocks end together, and
#: finding places takes them longer (chunks of a scan, of 1 to 4 products: 395 us on an H200, 346 without).
_LEAST = 32
#: Blocks along an axis that are counted: of more the places have no number of 32 bits.
_MOST = 2**31 - 1


def longest_first(launch: Launch) -> tuple[int, bool] | None:
    """The first axis of the grid along which trips of loops with products grow (True) or fall (False), others
    being the same; None where there is none, they differ by few, or trips follow from values in memory."""
    trips = _Trips(launch)
    extents = [trips.value(as_expr(each)) for each in launch.grid]
    for axis, extent in enumerate(extents):
        if extent is None or not 2 <= extent <= _MOST:
            continue
        found = [trips.of(launch.body, axis, place) for place in (0, extent // 2, extent - 1)]
        if abs(found[2] - found[0]) < _LEAST:
            continue
        if found[0] < found[1] < found[2] or found[0] > found[1] > found[2]:
            return axis, found[0] < found[2]
    return None


class _Trips:
    """Counts trips for one block of a launch."""

    def __init__(self, launch: Launch) -> None:
        self.blocks = launch.block_vars
        self.names = values_of(walk(launch.body))
        self.analyzer = sym.Analyzer()
        self.known: dict[Var, Expr] = {}

    def of(self, body: Block, axis: int, place: int) -> int:
        """Those of the block at ``place`` of an axis, and at the beginning of all others."""
        self.known = {
            var: tirx.const(place if number == axis else 0, dtype_of(var))
            for number, var in enumerate(self.blocks)
        }
        return sum(map(self._stmt, body))

    def _stmt(self, stmt: Stmt) -> int:
        if isinstance(stmt, WarpgroupProduct):
            return 1
        inside = [sum(map(self._stmt, inner)) for inner in children(stmt)]
        if not any(inside):
            return 0
        if isinstance(stmt, If):
            return max(inside)
        return self._trips(stmt) * inside[0] if isinstance(stmt, LOOPS) else sum(inside)

    def _trips(self, loop: Stmt) -> int:
        start, stop = (self.value(getattr(loop, name, None)) for name in ("start", "stop"))
        return 1 if start is None or stop is None else max(0, stop - start)

    def value(self, expr: Expr | None) -> int | None:
        """An expression with all dims the same; None where it reads memory."""
        while expr is not None and (free := [var for var in undefined_vars(expr) if isinstance(var, Var)]):
            named = {var: self.names[var] for var in free if var in self.names}
            given = {var: self.known.get(var, tirx.const(_DIM, dtype_of(var))) for var in free}
            tables = [var for var in free if not _is_number(var)]
            expr = None if tables else substitute(expr, {**given, **named})
        return None if expr is None else int_value(self.analyzer.simplify(expr))


def _is_number(var: Var) -> bool:
    return dtype_of(var) in ("int32", "int64") and not hasattr(var.ty, "shape")
