"""Floats that are whole numbers, and their bounds: what a store to an integer type leaves as they are."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tilec import dtypes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: The lowest and the highest value; between infinities any float, NaN as well.
Bounds = tuple[float, float]

_ANY = (-inf, inf)
_ROUNDED = ("floor", "ceil", "trunc", "round", "nearbyint")


class WholeNumbers:
    """What a kernel's float expressions hold where they are surely whole: rounded or literal numbers and
    integers, also named ones, and the smaller, the larger or either of such."""

    def __init__(self) -> None:
        self._named: dict[Var, Bounds] = {}

    def name(self, var: Var, expr: Expr) -> None:
        """Has ``var`` stand for ``expr``."""
        found = self._bounds(expr) if _is_float(expr) else None
        if found is not None:
            self._named[var] = found

    def fit(self, expr: Expr, to: str) -> bool:
        """Whether ``expr``, a float, is a whole number that the integer type ``to`` holds."""
        found, held = self._bounds(expr), _of_type(to)
        return found is not None and held[0] <= found[0] and found[1] <= held[1]

    def _bounds(self, expr: Expr) -> Bounds | None:
        """Those of a whole number; None where it may have a fraction."""
        from tvm import tirx

        from tilec.ir.exprs import choice_of

        if isinstance(expr, tirx.FloatImm):
            return _rounded((expr.value, expr.value), expr) if expr.value.is_integer() else None
        if isinstance(expr, tirx.Cast):
            return self._converted(expr)
        if isinstance(expr, (tirx.Min, tirx.Max)):
            return self._extreme(expr)
        if (choice := choice_of(expr)) is not None:
            return self._either(*choice[1:])
        name = getattr(getattr(expr, "op", None), "name", "")
        return _ANY if name.rpartition(".")[2] in _ROUNDED else self._named.get(expr)

    def _converted(self, expr: Expr) -> Bounds | None:
        given = str(expr.value.ty.dtype)
        if not {given, str(expr.ty.dtype)} <= dtypes.DTYPES.keys():
            return None
        found = self._bounds(expr.value) if _is_float(expr.value) else _of_type(given)
        return None if found is None else _rounded(found, expr)

    def _extreme(self, expr: Expr) -> Bounds | None:
        """Of NaN and a number the number."""
        from tvm import tirx

        a, b = self._bounds(expr.a), self._bounds(expr.b)
        if a is None or b is None:
            return None
        if isinstance(expr, tirx.Min):
            return min(a[0], b[0]), min(a[1], b[1])
        return max(a[0], b[0]), max(a[1], b[1])

    def _either(self, one: Expr, other: Expr) -> Bounds | None:
        a, b = self._bounds(one), self._bounds(other)
        return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _rounded(bounds: Bounds, expr: Expr) -> Bounds:
    """As the type of ``expr`` holds them."""
    from tilec.ir.interp.values import held

    low, high = (held(bound, str(expr.ty.dtype)) for bound in bounds)
    return low, high


def _of_type(dtype: str) -> Bounds:
    from tilec.ir.analysis.numbers.intervals import of_type

    found = of_type(dtype)
    return found.low, found.high


def _is_float(expr: Expr) -> bool:
    row = dtypes.DTYPES.get(str(expr.ty.dtype))
    return row is not None and row.is_float
