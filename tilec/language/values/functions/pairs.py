"""Arithmetic of packed pairs: T.add2 and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.errors import SourceValueError
from tilec.language.values.functions.intrinsics import extreme
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_vector
from tilec.language.values.operators import absolute, apply
from tilec.language.values.value import Vector
from tilec.language.values.vectors import lanewise

PAIRS = ("float16x2", "bfloat16x2", "float32x2")


def _pair(name: str, function: Callable[..., Any]) -> Callable[..., Vector]:
    def call(*values: Any, **options: bool) -> Vector:
        for value in values:
            if not isinstance(value, Vector) or str(value.dtype) not in PAIRS:
                shown = getattr(value, "dtype", type(value).__name__)
                raise source_error(
                    SourceValueError,
                    f"T.{name} takes {', '.join(PAIRS)}, not {shown}",
                    construct=f"T.{name}",
                    remedy="use T.float16x2(a, b) and the like",
                )
        kinds = {str(value.dtype) for value in values}
        if len(kinds) > 1:
            raise source_error(
                SourceValueError,
                f"T.{name} takes one dtype, got {', '.join(sorted(kinds))}",
                remedy="cast one side with T.cast",
            )
        made: Vector = lanewise(function)(*values, **options)
        return cast_vector(made, values[0].dtype)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``{name.rstrip('2')}`` of both lanes of pairs ({', '.join(PAIRS)})."
    return call


def _fma(x: Any, y: Any, z: Any) -> Any:
    return apply("+", apply("*", x, y), z)


def _extreme_pair(kind: str) -> Callable[..., Vector]:
    def of_lanes(x: Any, y: Any, nan_propagate: bool = False) -> Any:
        return extreme(kind, x, y, nan_propagate)

    pair = _pair(f"{kind}2", of_lanes)

    def call(x: Vector, y: Vector, nan_propagate: bool = False) -> Vector:
        return pair(x, y, nan_propagate=nan_propagate)

    call.__name__ = call.__qualname__ = f"{kind}2"
    call.__doc__ = f"{pair.__doc__} Of NaN and a number the number, with ``nan_propagate`` NaN."
    return call


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add2": _pair("add2", lambda x, y: apply("+", x, y)),
    "sub2": _pair("sub2", lambda x, y: apply("-", x, y)),
    "mul2": _pair("mul2", lambda x, y: apply("*", x, y)),
    "max2": _extreme_pair("max"),
    "min2": _extreme_pair("min"),
    "fma2": _pair("fma2", _fma),
    "abs2": _pair("abs2", absolute),
}
