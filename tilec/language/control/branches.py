"""Runtime branches and logic: ``if``, ternaries, ``and`` and ``or`` on expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import SourceRuntimeError
from tilec.ir import nodes as ir
from tilec.language.values.conversions import condition
from tilec.language.values.functions.intrinsics import if_then_else
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.builder import Builder, Frame
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.value import Value, Vector, resolve
from tilec.language.values.vectors import lanewise


class Branch:
    """One ``if``: decided while building where its condition is known, else a statement.

    The rewritten code asks ``then()`` and ``orelse()`` whether to run each side, then calls ``close()``."""

    def __init__(self, builder: Builder, cond: Any) -> None:
        self._builder = builder
        known = sessions.prove(cond.expr) if isinstance(cond, Value) else bool(cond)
        self._known = known
        self._cond = condition(cond, "if") if known is None else None
        self._loc = loc()
        self._frame: Frame | None = None
        self._then: ir.Block | None = None

    def then(self) -> bool:
        """Whether to run the first side."""
        if self._known is not None:
            return self._known
        self._frame = self._builder.push("if")
        return True

    def orelse(self) -> bool:
        """Whether to run the other side."""
        if self._known is not None:
            return not self._known
        self._then = self._take()
        self._frame = self._builder.push("if")
        return True

    def close(self) -> None:
        """Add the statement."""
        if self._cond is None:
            return
        last = self._take()
        then, orelse = (last, ()) if self._then is None else (self._then, last)
        if then or orelse:
            self._builder.emit(ir.If(self._cond, then, orelse, loc=self._loc), "if")

    def _take(self) -> ir.Block:
        assert self._frame is not None
        return self._builder.pop(self._frame)


def ternary(builder: Builder, cond: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """``then() if cond else orelse()``; with an expression only the taken side is evaluated at run time. A
    vector chooses lane by lane."""
    known = _truth(cond)
    if known is not None:
        return then() if known else orelse()
    taken = _quiet(builder, then, "a conditional expression")
    return lanewise(if_then_else)(cond, taken, _quiet(builder, orelse, "a conditional expression"))


def _truth(cond: Any) -> bool | None:
    """Of a condition while building; None where the run time knows."""
    if isinstance(cond, Vector):
        return None
    return sessions.prove(cond.expr) if isinstance(cond, Value) else bool(cond)


def conjunction(builder: Builder, symbol: str, first: Any, rest: Sequence[Callable[[], Any]]) -> Any:
    """``and`` / ``or``: Python's for Python values (left operands cut the rest off), else a logical
    expression."""
    from tvm import tirx

    join = tirx.And if symbol == "and" else tirx.Or
    result = resolve(first)
    for operand in rest:
        if not isinstance(result, Value):
            if bool(result) == (symbol == "or"):
                return result
            result = resolve(operand())
            continue
        right = resolve(_quiet(builder, operand, symbol))
        if not isinstance(right, Value):
            result = _absorbed(symbol, result, right)
        else:
            result = Value(join(condition(result, symbol), condition(right, symbol)))
    return result


def _absorbed(symbol: str, left: Value, right: Any) -> Any:
    """An expression with a Python value on its right: what that decides, else the expression's truth."""
    if bool(right) == (symbol == "or"):
        return bool(right)
    return Value(condition(left, symbol))


def _quiet(builder: Builder, operand: Callable[[], Any], construct: str) -> Any:
    """The operand's value; it must add no statements, since it may not be reached at run time."""
    before = builder.emitted
    value = operand()
    if builder.emitted != before:
        raise source_error(
            SourceRuntimeError,
            f"an operand of {construct} adds statements",
            construct=construct,
            remedy="call the macro before, and name its result",
        )
    return value
