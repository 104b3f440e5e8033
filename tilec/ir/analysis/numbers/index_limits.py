"""What dims have to fulfil so that a kernel's indices fit 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import ir as tvm_ir
from tvm import sym, tirx

from tilec.ir import nodes as ir
from tilec.ir.analysis.numbers.intervals import Interval, of_type
from tilec.ir.exprs import int_value, same, substitute
from tilec.ir.guards import largest_dim

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class Limits:
    """Collects conditions ``end <= limit`` of a kernel. Values over dims alone stay below the largest dim, so
    that tiles which reach past them still count within 32 bits."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self._found: list[tuple[Expr, int]] = []
        self._analyzer = sym.Analyzer()
        #: The dims of the smallest call that computes something.
        self._smallest: dict[Var, Expr] = {}
        for dim in kernel.dims:
            if dim.var is not None:
                low, high = max(dim.guard.min or 0, 0), dim.guard.max or largest_dim(32)
                dtype = str(dim.var.ty.dtype)
                span = tvm_ir.Range(tirx.const(low, dtype), tirx.const(max(low, high) + 1, dtype))
                self._analyzer.bind(dim.var, span)
                self._smallest[dim.var] = tirx.const(max(low, 1), dtype)

    def distance(self, start: Expr, end: Expr) -> int | None:
        """``end - start`` where that is a number."""
        if start.ty != end.ty:
            return None
        return int_value(self._analyzer.simplify(end - start))

    def kept(self, known: Any) -> Interval | None:
        """The range of a value that is kept in 32 bits by conditions, which are noted; None where none can
        be stated."""
        own = of_type("int32")
        room = own.high - largest_dim(32) if not known.moves else 0
        allowed = Interval(own.low + room, own.high - room)
        needs: list[tuple[Expr, int]] = []
        if known.range.high > allowed.high:
            needs.append((known.ends.most, allowed.high))
        if known.range.low < allowed.low:
            least = known.ends.least
            needs.append((None if least is None else tirx.const(0, "int64") - least, -allowed.low))
        if any(end is None for end, _ in needs):
            return None
        simple = [(self._analyzer.simplify(end), limit) for end, limit in needs]
        if any(self._refuses_all(end, limit) for end, limit in simple):
            return None
        self._found += simple
        kept: Interval = known.range.cut(allowed)
        return kept

    def _refuses_all(self, end: Expr, limit: int) -> bool:
        """Whether even the smallest call would not be served."""
        least = int_value(self._analyzer.simplify(substitute(end, self._smallest)))
        return least is not None and least > limit

    def assumptions(self) -> tuple[ir.Assume, ...]:
        """The conditions, without those that follow from others."""
        kept: list[tuple[Expr, int]] = []
        for end, limit in self._found:
            if not any(self._implies(other, end, limit) for other in kept):
                kept = [other for other in kept if not self._implies((end, limit), *other)]
                kept.append((end, limit))
        return tuple(ir.Assume(tirx.LE(end, tirx.const(limit, "int64"))) for end, limit in kept)

    def _implies(self, other: tuple[Expr, int], end: Expr, limit: int) -> bool:
        greater, most = other
        if most > limit:
            return False
        more = self._analyzer.simplify(greater - end)
        return same(greater, end) or bool(self._analyzer.const_int_bound(more).min_value >= 0)
