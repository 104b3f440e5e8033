"""Comparisons and differences of floats kept from TVM's simplifier, whose rules are those of numbers.

    not x < y    is not    y <= x    where one of them is NaN
    x - x        is not    0         where x is infinite

Behind `hide_floats` they are calls that nothing looks into; `show_floats` turns them back. LLVM gets `!=` as
the opposite of `==`: TVM's own comparison of two floats is false where one of them is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Call

from tilec.ir.exprs import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tvm.ir import Expr

_PREFIX = "tilec_floats_"
_KINDS = {kind.__name__: kind for kind in (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Sub)}


def hide_floats() -> Any:
    """The pass of functions of TVM in front of a simplifier."""
    return _pass([(kind, _hidden) for kind in _KINDS.values()], "tilec.HideFloats")


def show_floats() -> Any:
    """The pass behind it."""
    return _pass([(Call, _shown), (tirx.NE, _unequal)], "tilec.ShowFloats")


def _pass(rewritten: Sequence[tuple[Any, Callable[[Any], Expr]]], name: str) -> Any:
    import tvm_ffi

    def mapped(function: Any, _module: Any, _context: Any) -> Any:
        return function.with_body(tvm_ffi.structural_map(function.body, rewritten))

    return tirx.transform.prim_func_pass(mapped, opt_level=0, name=name)


def _hidden(expr: Expr) -> Expr:
    if not dtype_of(expr.a).startswith("float"):
        return expr
    return tirx.call_pure_extern(dtype_of(expr), _PREFIX + type(expr).__name__, expr.a, expr.b)


def _shown(call: Call) -> Expr:
    name = str(getattr(call.args[0], "value", "")) if len(call.args) == 3 else ""
    kind = _KINDS.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    return call if kind is None else _unequal(kind(*call.args[1:]))


def _unequal(expr: Expr) -> Expr:
    if not isinstance(expr, tirx.NE) or not dtype_of(expr.a).startswith("float"):
        return expr
    return tirx.Not(tirx.EQ(expr.a, expr.b))
