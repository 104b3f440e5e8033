"""Rewriting TVM expressions; looking at them and replacing parts is `tilec.ir.exprs`, repeated here for the
passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var

from tilec.ir.exprs import (
    BINARY,
    COMPARE,
    LOGIC,
    all_of,
    conjuncts,
    dtype_of,
    int_value,
    loads,
    operands,
    rebuild,
    same,
    same_all,
    scalar_dtype,
    substitute,
    transform,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

__all__ = [
    "BINARY",
    "COMPARE",
    "LOGIC",
    "all_of",
    "conjuncts",
    "dtype_of",
    "inlined",
    "int_value",
    "linear_in",
    "loads",
    "operands",
    "rebuild",
    "same",
    "same_all",
    "scalar_dtype",
    "substitute",
    "transform",
    "uses",
    "walk",
]


def inlined(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced, those that the replacements mention too."""
    for _ in values:
        expr = substitute(expr, values)
    return expr


def uses(expr: Expr, variables: object) -> bool:
    """Whether ``expr`` mentions one of ``variables`` (a container of Var)."""
    return any(isinstance(node, Var) and node in variables for node in walk(expr))  # type: ignore[operator]


def linear_in(expr: Expr, variables: Sequence[Var]) -> list[Expr]:
    """The factors of ``variables`` in ``expr``, then what is left without them; nothing where it is not
    linear. Casts of indices to 64 bits do not count."""
    if not any(isinstance(node, tirx.Cast) for node in walk(expr)):
        return list(sym.detect_linear_equation(expr, list(variables)))
    twins = {var: tirx.Var(str(var.name), "int64") for var in variables}
    expr = transform(expr, lambda node: _spread(node, twins))
    if uses(expr, twins):
        return []
    return list(sym.detect_linear_equation(expr, list(twins.values())))


def _spread(node: Expr, twins: Mapping[Var, Expr]) -> Expr | None:
    """A cast to 64 bits of a sum, a difference or a product as one of casts."""
    if not isinstance(node, tirx.Cast) or dtype_of(node) != "int64" or dtype_of(node.value) != "int32":
        return None
    inner = node.value
    if isinstance(inner, Var):
        return twins.get(inner, node)
    if not isinstance(inner, (tirx.Add, tirx.Sub, tirx.Mul)):
        return node
    sides = (_widened(side, twins) for side in (inner.a, inner.b))
    return type(inner)(*sides)


def _widened(side: Expr, twins: Mapping[Var, Expr]) -> Expr:
    number = int_value(side)
    if number is not None:
        return tirx.const(number, "int64")
    cast = tirx.Cast("int64", side)
    spread = _spread(cast, twins)
    return cast if spread is None else spread
