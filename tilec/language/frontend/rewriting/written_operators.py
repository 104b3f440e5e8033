"""What operators of rewritten code do: Python's own on Python values, the language's on expressions."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.tiles.memory.buffers import Buffer
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operators import apply
from tilec.language.values.value import Value, resolve

_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv,
    "//": operator.ifloordiv, "%": operator.imod, "<<": operator.ilshift, ">>": operator.irshift,
    "&": operator.iand, "|": operator.ior, "^": operator.ixor, "**": operator.ipow, "@": operator.imatmul,
}  # fmt: skip


def updated(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol= right``, where no whole buffer stands on the left."""
    if isinstance(left, Value) or isinstance(right, Value):
        return _binary(symbol, left, right)
    return _INPLACE[symbol](left, right)


def _binary(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right``, of which one at least is an expression."""
    if symbol in ("**", "@"):
        remedy = "use T.pow" if symbol == "**" else "use T.gemm"
        raise unsupported(f"operator {symbol} on expressions", remedy=remedy)
    return apply(symbol, left, right)


def compare(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right`` of a comparison, a test of membership or of identity."""
    left, right = resolve(left), resolve(right)
    if symbol in ("in", "not in"):
        if isinstance(left, Value):
            raise unsupported(
                f"{symbol} with an expression on its left",
                why="truth value of an expression",
                remedy=_for_membership(symbol, right),
            )
        return (left in right) == (symbol == "in")
    if symbol in ("is", "is not"):
        return (left is right) == (symbol == "is")
    if isinstance(left, Value) or isinstance(right, Value):
        return apply(symbol, left, right)
    if isinstance(left, Buffer) and isinstance(right, Buffer) and left is not right:
        raise source_error(
            SourceTypeError,
            f"{left.name} {symbol} {right.name} compares no elements",
            why="they are two buffers, whatever these hold",
            remedy=f"compare elements in a T.Parallel loop; for one buffer ask `{left.name} is {right.name}`",
        )
    return _COMPARISONS[symbol](left, right)


def _for_membership(symbol: str, container: Any) -> str:
    """What to write for ``x in container`` where x is an expression."""
    if isinstance(container, builtins.range):
        return "compare with both ends: (x >= 0) & (x < n)"
    if symbol == "in":
        return "compare with each value: (x == 1) | (x == 2)"
    return "compare with each value: (x != 1) & (x != 2)"


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
