"""Sets of consecutive integers, and what arithmetic makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx


@dataclass(frozen=True)
class Interval:
    """All integers from ``low`` to ``high``, both included."""

    low: int
    high: int

    def fits(self, other: Interval) -> bool:
        """Whether all of it lies in another one."""
        return other.low <= self.low and self.high <= other.high

    def joined(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def cut(self, other: Interval) -> Interval:
        """What both have in common; this one where that is nothing."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Interval(low, high) if low <= high else self


def of_type(dtype: str) -> Interval:
    """The numbers of an integer type; bool counts as 0 and 1."""
    if dtype == "bool":
        return Interval(0, 1)
    half = 1 << (int(dtype.lstrip("uint")) - 1)
    return Interval(0, 2 * half - 1) if dtype.startswith("u") else Interval(-half, half - 1)


def combined(kind: type, left: Interval, right: Interval) -> Interval | None:
    """What an operation of TVM, as one of whole numbers, makes of two intervals; None: nothing is known."""
    rule = _RULES.get(kind)
    return None if rule is None else rule(left, right)


def _corners(operation: Callable[[int, int], int], left: Interval, right: Interval) -> Interval:
    values = [operation(a, b) for a in (left.low, left.high) for b in (right.low, right.high)]
    return Interval(min(values), max(values))


def _quotient(operation: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval | None]:
    """Quotients are monotonous on either side of a divisor of 0, which gives 0 on a CPU."""

    def rule(left: Interval, right: Interval) -> Interval | None:
        parts = [Interval(max(right.low, 1), right.high), Interval(right.low, min(right.high, -1))]
        made = [_corners(operation, left, part) for part in parts if part.low <= part.high]
        if right.low <= 0 <= right.high:
            made.append(Interval(0, 0))
        result = made[0]
        for part in made[1:]:
            result = result.joined(part)
        return result

    return rule


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(left: Interval, right: Interval) -> Interval:
    """As floor division leaves it: of the divisor's sign."""
    most = Interval(min(right.low + 1, 0), max(right.high - 1, 0))
    small = left.low >= 0 and left.high < right.low
    return (
        left if small else most if left.low < 0 or right.low < 0 else Interval(0, min(most.high, left.high))
    )


def _rest(left: Interval, right: Interval) -> Interval:
    """As truncating division leaves it: of the dividend's sign."""
    most = max(abs(right.low), abs(right.high), 1) - 1
    return Interval(max(left.low, -most) if left.low < 0 else 0, min(left.high, most) if left.high > 0 else 0)


def _masked(left: Interval, right: Interval) -> Interval | None:
    """A bitwise and with a number that is not negative leaves no more than that."""
    kept = [side.high for side in (left, right) if side.low >= 0]
    return Interval(0, min(kept)) if kept else None


def _shifted(left: Interval, right: Interval) -> Interval | None:
    return _corners(lambda a, b: a << b, left, right) if right.low >= 0 and right.high < 64 else None


def _halved(left: Interval, right: Interval) -> Interval | None:
    return _corners(lambda a, b: a >> b, left, right) if right.low >= 0 and right.high < 64 else None


_RULES: dict[type, Callable[[Interval, Interval], Interval | None]] = {
    tirx.Add: lambda a, b: Interval(a.low + b.low, a.high + b.high),
    tirx.Sub: lambda a, b: Interval(a.low - b.high, a.high - b.low),
    tirx.Mul: lambda a, b: _corners(lambda x, y: x * y, a, b),
    tirx.FloorDiv: _quotient(lambda a, b: a // b),
    tirx.Div: _quotient(_truncated),
    tirx.FloorMod: _remainder,
    tirx.Mod: _rest,
    tirx.Min: lambda a, b: Interval(min(a.low, b.low), min(a.high, b.high)),
    tirx.Max: lambda a, b: Interval(max(a.low, b.low), max(a.high, b.high)),
    tirx.BitwiseAnd: _masked,
    tirx.LShift: _shifted,
    tirx.RShift: _halved,
}
