"""The larger and the smaller of two values: dropping NaN, or keeping it.

`tirx.Max` and `tirx.Min` of floats give the operand that is a number. The forms that keep NaN are calls by
the names of C23 (F.10.9.5), ``fmaximum`` and ``fminimum``: NaN where either operand is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call

from tilec.ir.exprs import scalar_dtype

if TYPE_CHECKING:
    from tvm.ir import Expr

#: "max" or "min" -> the function that keeps NaN.
KEEPING = {"max": "fmaximum", "min": "fminimum"}
DROPPING: dict[str, type] = {"max": tirx.Max, "min": tirx.Min}
#: The other way round: what a call by such a name computes.
KEPT = {name: kind for kind, name in KEEPING.items()}
_NODES = {node: kind for kind, node in DROPPING.items()}


def extreme(kind: str, left: Expr, right: Expr, nan_propagate: bool) -> Expr:
    """The larger or the smaller of two values of one dtype, ``kind`` "max" or "min"; integers know no NaN."""
    if not nan_propagate or not scalar_dtype(left).startswith(("float", "bfloat")):
        return DROPPING[kind](left, right)
    return tirx.call_pure_extern(str(left.ty.dtype), KEEPING[kind], left, right)


def parts(expr: Expr) -> tuple[str, bool, Expr, Expr] | None:
    """Kind, whether NaN is kept, and the operands of an expression made by `extreme`; None for any other."""
    kind = _NODES.get(type(expr))
    if kind is not None:
        return kind, False, expr.a, expr.b
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") != "tirx.call_pure_extern":
        return None
    kind = KEPT.get(str(expr.args[0].value))
    return None if kind is None else (kind, True, expr.args[1], expr.args[2])
