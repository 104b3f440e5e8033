"""Products whose difference decides a result are rounded before they meet, as they are written.

    exp2(s * c - m)  ->  exp2(fence(s * c) - fence(m))       x * c - y * c  ->  fence(x * c) - fence(y * c)

LLVM makes one instruction of a product and a sum, and then one of two equal products has more digits than
the other: of two masked scores, -1e30 both, the difference is 1e22 instead of 0, and its power infinity or 0
instead of 1. So terms of an exponent, and products with a common factor, are not contracted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call, TensorLoad

from tilec.ir.exprs import EXPONENTIALS, dtype_of, lane_of, rebuild, same
from tilec.lowering.emission.body_passes import body_pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

    from tilec.lowering.emission.body_passes import Rewrite

_FENCE = "llvm.arithmetic.fence"


def round_alike() -> Any:
    """The pass of functions of TVM that does so."""

    def rewrites(_function: tirx.PrimFunc) -> list[Rewrite]:
        named: dict[Var, Expr] = {}

        def name(stmt: tirx.Bind) -> tirx.Bind:
            named[stmt.var] = stmt.value
            return stmt

        def store(stmt: tirx.BufferStore) -> tirx.BufferStore:
            named[stmt.buffer] = stmt.value
            return stmt

        def difference(expr: tirx.Sub) -> Expr:
            alike = dtype_of(expr).startswith("float") and _have_common_factor(expr.a, expr.b, named)
            return tirx.Sub(_fenced(expr.a), _fenced(expr.b)) if alike else expr

        return [(tirx.Bind, name), (tirx.BufferStore, store), (Call, _exponential), (tirx.Sub, difference)]

    return body_pass("RoundAlike", rewrites)


def _exponential(call: Call) -> Call:
    if getattr(call.op, "name", "") not in EXPONENTIALS:
        return call
    return rebuild(call, tuple(map(_terms_fenced, call.args)))


def _terms_fenced(expr: Expr) -> Expr:
    if not isinstance(expr, (tirx.Add, tirx.Sub)):
        return expr
    return type(expr)(*(_fenced(_terms_fenced(term)) for term in (expr.a, expr.b)))


def _fenced(expr: Expr) -> Expr:
    """The value, rounded; numbers and results of functions are."""
    if isinstance(lane_of(expr), (tirx.FloatImm, Call)):
        return expr
    return tirx.call_llvm_pure_intrin(dtype_of(expr), _FENCE, expr)


def _have_common_factor(a: Expr, b: Expr, named: Mapping[Var, Expr]) -> bool:
    left, right = _factors(a, named), _factors(b, named)
    return any(same(x, y) for x in left for y in right)


def _factors(expr: Expr, named: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    """What a product, or what was last stored where it is read, multiplies; nothing for others."""
    read = lane_of(expr)
    name = read.source if isinstance(read, TensorLoad) else read
    made = lane_of(named.get(name, read))
    return (lane_of(made.a), lane_of(made.b)) if isinstance(made, tirx.Mul) else ()
