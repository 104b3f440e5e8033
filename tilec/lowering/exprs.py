"""Rewriting TVM expressions; looking at them and replacing parts is `tilec.ir.exprs`, repeated here for the
passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
