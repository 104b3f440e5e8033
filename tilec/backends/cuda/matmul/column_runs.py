"""How many neighbouring columns share a value that depends on a column's block alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.ir.exprs import dtype_of, int_value, substitute, transform, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def run_length(value: Expr, column: Var, columns: int) -> int:
    """The longest run of columns, aligned to its own length and a divisor of ``columns``, within which
    ``value`` is the same whatever its other variables are: ``column`` may stand in quotients
    ``(start + column) // n`` alone. 1 where it stands elsewhere."""
    found = [columns]

    def visit(node: Expr) -> Expr | None:
        block = _block_of(node, column)
        if block is None:
            return None
        found.append(block)
        return tirx.const(0, dtype_of(node))

    rest = transform(value, visit)
    return 1 if uses(rest, (column,)) else math.gcd(*found)


def _block_of(node: Expr, column: Var) -> int | None:
    """The common divisor of n and start in ``(start + column) // n``; None for other expressions."""
    if not isinstance(node, tirx.FloorDiv) or not uses(node.a, (column,)):
        return None
    size, zero = int_value(node.b), tirx.const(0, dtype_of(column))
    start = substitute(node.a, {column: zero})
    analyzer = sym.Analyzer()
    step = int_value(analyzer.simplify(node.a - start - column))
    if size is None or step != 0:
        return None
    known = analyzer.modular_set(start)
    return math.gcd(size, known.coeff, known.base)
