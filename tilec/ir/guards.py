"""What a variant demands of one dimension: the value, a divisor, bounds."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

#: The last tile along a dim counts on past its end; no tile is this long.
_TILE_ROOM = 1 << 20


def largest_dim(bits: int) -> int:
    """The largest value of a dim that kernels compute in ``bits`` bits, with room for the tile that reaches
    past its end."""
    return (1 << (bits - 1)) - 1 - _TILE_ROOM


#: A part of a guard -> whether a value keeps it, and what is said of one that does not; in the order in which
#: dispatch looks.
_PARTS: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "eq": (operator.eq, "is not"),
    "div": (lambda value, divisor: value % divisor == 0, "is not a multiple of"),
    "min": (operator.ge, "is below"),
    "max": (operator.le, "is above"),
}


@dataclass(frozen=True)
class Guard:
    """A conjunction over one dim. ``eq`` pins it; else ``div`` divides it and ``min`` <= dim <= ``max``
    (None: unbounded). ``Guard()`` admits every value ("dynamic")."""

    eq: int | None = None
    div: int = 1
    min: int | None = None
    max: int | None = None

    def admits(self, value: Any) -> Any:
        """Whether ``value`` satisfies the guard; of an array, one answer for each element."""
        return reduce(operator.and_, (keeps(value, part) for keeps, _, part in self._demands()), True)

    def rejection(self, value: int) -> str:
        """Why the guard does not admit ``value``: "is below 128"; empty where it does."""
        said = (f"{text} {part}" for keeps, text, part in self._demands() if not keeps(value, part))
        return next(said, "")

    @property
    def parts(self) -> dict[str, int]:
        """What demands something, by name, in the order of dispatch; beside ``eq`` nothing does."""
        if self.eq is not None:
            return {"eq": self.eq}
        named = {"div": self.div if self.div != 1 else None, "min": self.min, "max": self.max}
        return {name: part for name, part in named.items() if part is not None}

    def _demands(self) -> Iterator[tuple[Callable[[Any, int], Any], str, int]]:
        return ((*_PARTS[name], part) for name, part in self.parts.items())

    def __and__(self, other: Guard) -> Guard:
        """What both admit; a value that one of them pins, as it is."""
        if self.eq is not None or other.eq is not None:
            return self if self.eq is not None else other
        least = [each.min for each in (self, other) if each.min is not None]
        most = [each.max for each in (self, other) if each.max is not None]
        div = math.lcm(self.div, other.div)
        return Guard(None, div, max(least, default=None), min(most, default=None))

    @property
    def least(self) -> int:
        """What each admitted value is at least, but for 0."""
        return max(self.eq or 0, self.min or 0, self.div)

    def smallest(self, start: int = 1) -> int | None:
        """The least dimension of ``start`` or more that it admits; None when there is none."""
        if self.eq is not None:
            return self.eq if self.eq >= start else None
        low = max(self.min or start, start)
        value = -(-low // self.div) * self.div
        return value if self.max is None or value <= self.max else None

    def up_to(self, largest: int) -> Guard:
        """The guard of values that are at most ``largest``: a bound beyond that demands nothing."""
        return self if self.max is None or self.max <= largest else replace(self, max=None)

    @property
    def is_dynamic(self) -> bool:
        """Whether every value is admitted."""
        return self == Guard()

    def __str__(self) -> str:
        """The manifest's spelling: "64", "dynamic", "%16", "1..64", ">=128", "<=64" and conjunctions."""
        if self.eq is not None:
            return str(self.eq)
        parts = [f"%{self.div}"] if self.div != 1 else []
        if self.min is not None and self.max is not None:
            parts.append(f"{self.min}..{self.max}")
        elif self.min is not None:
            parts.append(f">={self.min}")
        elif self.max is not None:
            parts.append(f"<={self.max}")
        return ",".join(parts) or "dynamic"
