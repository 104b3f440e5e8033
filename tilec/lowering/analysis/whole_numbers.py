"""Index expressions without the casts that give them room, so that equal numbers compare as equal.

int64(first) + int64(k) * 8    and    int64(first + k * 8)    are both    first + k * 8
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.ir.exprs import dtype_of, int_value, transform, walk

if TYPE_CHECKING:
    from tvm.ir import Expr

_WIDE = "int64"


class WholeNumbers:
    """Expressions over 64-bit names, one for each variable: what two statements compute in integers of
    different widths can be compared. Index arithmetic stays in its types
    (`tilec.ir.analysis.numbers.widen`)."""

    def __init__(self) -> None:
        self._names: dict[Var, Var] = {}

    def name(self, var: Var) -> Var:
        """The name that stands for a variable."""
        return self._names.setdefault(var, tirx.Var(str(var.name), _WIDE))

    def of(self, expr: Expr) -> Expr | None:
        """An expression over these names; None for one that calls, reads memory or has other types."""
        opaque = any(isinstance(node, (Call, TensorLoad)) or not _is_integer(node) for node in walk(expr))
        return None if opaque else transform(expr, self._visit)

    def equal(self, one: Expr, other: Expr) -> bool:
        """Whether two expressions are known to be the same number."""
        left, right = self.of(one), self.of(other)
        return left is not None and right is not None and is_zero(left - right)

    def _visit(self, node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return self.name(node)
        if isinstance(node, tirx.IntImm):
            return tirx.const(int(node.value), _WIDE)
        return transform(node.value, self._visit) if isinstance(node, tirx.Cast) else None


def is_zero(value: Expr) -> bool:
    """Whether the value of an expression is known to be 0."""
    return int_value(sym.Analyzer().simplify(value)) == 0


def _is_integer(node: Expr) -> bool:
    return dtype_of(node) in ("int32", "int64", "bool")
