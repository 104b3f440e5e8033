"""Integers of 32 bits and more computed in 16, where these hold all that counts of them.

    cast(uint8, 77 * r + 150 * g + 29 * b + 128 >> 8), r, g and b from 0 to 255: all sums are below 65536
    cast(int8, a * b + c * d >> 4): of the sums the 12 lowest bits count

Sums and products of the lowest bits are the lowest bits of sums and products; what orders numbers, divides
them or moves bits down wants whole ones, or as many bits more.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.analysis.numbers.intervals import Interval, combined, of_type
from tilec.ir.analysis.numbers.ranges import cut
from tilec.ir.exprs import cast_to, choice_of, dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr

#: What has room for all numbers, and how they are read where they have no sign.
WORD, _UNSIGNED = "int16", "uint16"
_BITS = 16
#: The types that are computed with in fewer bits, and those that hold no more.
WIDE, NARROW = ("int32", "uint32", "int64", "uint64"), ("int8", "uint8", "int16", "uint16")
#: Their lowest bits depend on those of their operands alone.
_FROM_LOWEST = (tirx.Add, tirx.Sub, tirx.Mul, tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor)
_ORDERED = (tirx.Min, tirx.Max)
_COMPARED = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_QUOTIENTS = {
    tirx.FloorDiv: tirx.truncdiv,
    tirx.Div: tirx.truncdiv,
    tirx.FloorMod: tirx.truncmod,
    tirx.Mod: tirx.truncmod,
}


@dataclass(frozen=True, eq=False)
class Narrowed:
    """An int16 ``value`` that has the lowest bits of a number, which lies in ``range`` (None: anywhere)."""

    value: Expr
    range: Interval | None

    def fits(self, dtype: str) -> bool:
        """Whether a type of 16 bits has all that the number may be."""
        return self.range is not None and self.range.fits(of_type(dtype))


@dataclass
class Narrowing:
    """``twins`` are int16 names and variables that have the lowest bits of wider ones, ``ranges`` what these
    may hold. Numbers that are not ``moving`` are the same for all lanes."""

    moving: Container[Var]
    twins: dict[Var, Var] = field(default_factory=dict)
    ranges: dict[Var, Interval] = field(default_factory=dict)

    def made(self, expr: Expr, need: int = _BITS) -> Narrowed | None:
        """The ``need`` lowest bits (up to 16) of an integer; None where 16 bits are not enough for them."""
        number = int_value(expr)
        if number is not None:
            return Narrowed(tirx.const(cut(number, WORD), WORD), Interval(number, number))
        if isinstance(expr, (Var, TensorLoad)):
            return self._read(expr)
        if isinstance(expr, tirx.Cast):
            return self._cast(expr, need)
        choice = choice_of(expr)
        if choice is not None:
            return self._chosen(expr, choice, need)
        return self._combined(expr, need) if hasattr(expr, "b") else None

    def condition(self, cond: Expr) -> Expr:
        """A condition whose comparisons take 16 bits where they may."""
        if isinstance(cond, (tirx.And, tirx.Or)):
            return type(cond)(self.condition(cond.a), self.condition(cond.b))
        if not isinstance(cond, _COMPARED) or dtype_of(cond.a) not in WIDE:
            return cond
        sides = _whole(self.made(cond.a), self.made(cond.b))
        return cond if sides is None else type(cond)(*sides)

    def _read(self, expr: Var | TensorLoad) -> Narrowed | None:
        var = expr if isinstance(expr, Var) else expr.source
        twin = self.twins.get(var)
        if twin is not None:
            value = twin if isinstance(expr, Var) else tirx.BufferLoad(twin, list(expr.indices))
            return Narrowed(value, self.ranges.get(var))
        same = isinstance(expr, Var) and dtype_of(expr) in WIDE and expr not in self.moving
        return Narrowed(tirx.Cast(WORD, expr), self.ranges.get(var)) if same else None

    def _cast(self, expr: tirx.Cast, need: int) -> Narrowed | None:
        inner = dtype_of(expr.value)
        if inner in WIDE:
            found = self.made(expr.value, need) if dtype_of(expr) in WIDE else None
            return found and Narrowed(found.value, _within(found.range, dtype_of(expr)))
        if inner not in NARROW or dtype_of(expr) not in WIDE:
            return None
        return Narrowed(cast_to(expr.value, WORD), _within(of_type(inner), dtype_of(expr)))

    def _chosen(self, expr: Expr, choice: tuple[Expr, Expr, Expr], need: int) -> Narrowed | None:
        then, other = self.made(choice[1], need), self.made(choice[2], need)
        if then is None or other is None:
            return None
        known = then.range.joined(other.range) if then.range and other.range else None
        value = tirx.Select(self.condition(choice[0]), then.value, other.value)
        if not isinstance(expr, tirx.Select):
            value = tirx.if_then_else(value.condition, value.true_value, value.false_value)
        return Narrowed(value, known)

    def _combined(self, expr: Expr, need: int) -> Narrowed | None:
        kind, places = type(expr), _places(expr)
        if places is not None:
            return self._moved_down(expr, places, need)
        if kind in _QUOTIENTS:
            return self._divided(expr)
        if kind in _ORDERED:
            return self._extreme(expr)
        if kind in _FROM_LOWEST or (kind is tirx.LShift and 0 <= (int_value(expr.b) or 0) < _BITS):
            return _joined(expr, self.made(expr.a, need), self.made(expr.b, need))
        return None

    def _moved_down(self, expr: Expr, places: int, need: int) -> Narrowed | None:
        """A number moved down: by the bits above it, or a whole one with its sign."""
        enough = need + places <= _BITS
        found = self.made(expr.a, need + places if enough else _BITS)
        if found is None or (isinstance(expr, tirx.Div) and (found.range is None or found.range.low < 0)):
            return None
        known = _result(expr, found.range, Interval(places, places), tirx.RShift)
        if found.fits(WORD) or (enough and not found.fits(_UNSIGNED)):
            return Narrowed(found.value >> tirx.const(places, WORD), known)
        if not found.fits(_UNSIGNED):
            return None
        moved = tirx.Cast(_UNSIGNED, found.value) >> tirx.const(places, _UNSIGNED)
        return Narrowed(tirx.Cast(WORD, moved), known)

    def _divided(self, expr: Expr) -> Narrowed | None:
        """A whole number that is not negative over one that is known, or what is left of it."""
        found, divisor = self.made(expr.a), int_value(expr.b)
        if found is None or not divisor or not 0 < divisor < 1 << _BITS or not found.fits(_UNSIGNED):
            return None
        made = _QUOTIENTS[type(expr)](tirx.Cast(_UNSIGNED, found.value), tirx.const(divisor, _UNSIGNED))
        return Narrowed(tirx.Cast(WORD, made), _result(expr, found.range, Interval(divisor, divisor)))

    def _extreme(self, expr: Expr) -> Narrowed | None:
        left, right = self.made(expr.a), self.made(expr.b)
        sides = _whole(left, right)
        if left is None or right is None or sides is None:
            return None
        return Narrowed(cast_to(type(expr)(*sides), WORD), _result(expr, left.range, right.range))


def computes(expr: Expr) -> bool:
    """Whether an integer is made by operations, not only brought from one type to another."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return not isinstance(expr, (Var, TensorLoad)) and int_value(expr) is None


def _whole(left: Narrowed | None, right: Narrowed | None) -> tuple[Expr, Expr] | None:
    """Both numbers whole, with a sign or without; None where 16 bits do not hold them."""
    if left is None or right is None:
        return None
    for dtype in (WORD, _UNSIGNED):
        if left.fits(dtype) and right.fits(dtype):
            return cast_to(left.value, dtype), cast_to(right.value, dtype)
    return None


def _places(expr: Expr) -> int | None:
    """By how many bits an expression moves a number down: shifts and quotients by powers of two."""
    number = int_value(expr.b)
    if number is None or number < 0:
        return None
    if isinstance(expr, tirx.RShift):
        return number if number < _BITS else None
    power = number > 0 and not number & (number - 1) and number < 1 << _BITS
    return number.bit_length() - 1 if power and isinstance(expr, (tirx.FloorDiv, tirx.Div)) else None


def _joined(expr: Expr, left: Narrowed | None, right: Narrowed | None) -> Narrowed | None:
    if left is None or right is None:
        return None
    return Narrowed(type(expr)(left.value, right.value), _result(expr, left.range, right.range))


def _result(
    expr: Expr, left: Interval | None, right: Interval | None, kind: type | None = None
) -> Interval | None:
    """What an operation may give, where its type has all of that."""
    if left is None or right is None:
        return None
    return _within(combined(kind or type(expr), left, right), dtype_of(expr))


def _within(found: Interval | None, dtype: str) -> Interval | None:
    return found if found is not None and found.fits(of_type(dtype)) else None
