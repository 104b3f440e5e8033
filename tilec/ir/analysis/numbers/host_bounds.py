"""The lowest and the highest value of an index, as expressions over dims, which the host knows before a
launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tvm import tirx

from tilec.ir.exprs import int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.analysis.numbers.intervals import Interval


@dataclass(frozen=True, eq=False)
class Ends:
    """Both ends, in 64 bits; None where an end depends on data."""

    least: Expr | None = None
    most: Expr | None = None

    def until(self, stop: Ends) -> Ends:
        """Those of a counter that starts here and stays below ``stop``."""
        return Ends(self.least, None if stop.most is None else stop.most - 1)

    def joined(self, other: Ends) -> Ends:
        """Those of a value that is either this one or the other."""
        return Ends(_both(tirx.min, self.least, other.least), _both(tirx.max, self.most, other.most))


NO_ENDS = Ends()


class Known(Protocol):
    """An operand: its range in numbers and its ends."""

    @property
    def range(self) -> Interval:
        """The numbers that it may be."""

    @property
    def ends(self) -> Ends:
        """Its ends over dims."""


def fixed(var: Var) -> Ends:
    """A dim."""
    value = tirx.Cast("int64", var) if str(var.ty.dtype) != "int64" else var
    return Ends(value, value)


def number_ends(value: int) -> Ends:
    """A number."""
    if not -(1 << 63) <= value < 1 << 63:
        return NO_ENDS
    made = tirx.const(value, "int64")
    return Ends(made, made)


def ends_of(kind: type, left: Known, right: Known) -> Ends:
    """What an operation makes of two operands."""
    rule = _RULES.get(kind)
    return NO_ENDS if rule is None else rule(left, right)


def _both(operation: Any, a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else operation(a, b)


def _sum(left: Known, right: Known) -> Ends:
    a, b = left.ends, right.ends
    return Ends(_both(tirx.Add, a.least, b.least), _both(tirx.Add, a.most, b.most))


def _difference(left: Known, right: Known) -> Ends:
    a, b = left.ends, right.ends
    return Ends(_both(tirx.Sub, a.least, b.most), _both(tirx.Sub, a.most, b.least))


def _product(left: Known, right: Known) -> Ends:
    a, b = left.ends, right.ends
    if left.range.low >= 0 and right.range.low >= 0:
        return Ends(_both(tirx.Mul, a.least, b.least), _both(tirx.Mul, a.most, b.most))
    for factor, other in ((a, b), (b, a)):
        number = None if factor.least is None else int_value(factor.least)
        if number is not None:
            low, high = (other.least, other.most) if number >= 0 else (other.most, other.least)
            return Ends(_both(tirx.Mul, factor.least, low), _both(tirx.Mul, factor.least, high))
    most = _both(tirx.Mul, _size(a), _size(b))
    return NO_ENDS if most is None else Ends(0 - most, most)


def _size(ends: Ends) -> Expr | None:
    """The largest magnitude."""
    least = None if ends.least is None else 0 - ends.least
    return _both(tirx.max, ends.most, least)


def _quotient(left: Known, right: Known) -> Ends:
    """By 0 it is 0."""
    a, divisor = left.ends, right.ends.least
    if right.range.low < 0:
        return NO_ENDS
    if divisor is not None and (int_value(divisor) or 0) > 0:
        return Ends(_both(tirx.FloorDiv, a.least, divisor), _both(tirx.FloorDiv, a.most, divisor))
    return Ends(tirx.const(0, "int64"), a.most) if left.range.low >= 0 else NO_ENDS


def _remainder(left: Known, right: Known) -> Ends:
    if right.range.low < 0:
        return NO_ENDS
    return Ends(tirx.const(0, "int64"), right.ends.most)


def _smaller(left: Known, right: Known) -> Ends:
    a, b = left.ends, right.ends
    return Ends(_both(tirx.min, a.least, b.least), _either(tirx.min, a.most, b.most))


def _larger(left: Known, right: Known) -> Ends:
    a, b = left.ends, right.ends
    return Ends(_either(tirx.max, a.least, b.least), _both(tirx.max, a.most, b.most))


def _either(operation: Any, a: Expr | None, b: Expr | None) -> Expr | None:
    return operation(a, b) if a is not None and b is not None else b if a is None else a


def _not_negative(rule: Any) -> Any:
    """Truncating division is floor division where nothing is negative."""
    return lambda left, right: rule(left, right) if left.range.low >= 0 else NO_ENDS


_RULES: dict[type, Any] = {
    tirx.Add: _sum,
    tirx.Sub: _difference,
    tirx.Mul: _product,
    tirx.FloorDiv: _quotient,
    tirx.FloorMod: _remainder,
    tirx.Div: _not_negative(_quotient),
    tirx.Mod: _not_negative(_remainder),
    tirx.Min: _smaller,
    tirx.Max: _larger,
}
