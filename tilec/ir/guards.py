"""What a variant demands of one dimension: the value, a divisor, bounds."""

from __future__ import annotations

from dataclasses import dataclass

#: The last tile along a dim counts on past its end; no tile is this long.
_TILE_ROOM = 1 << 20


def largest_dim(bits: int) -> int:
    """The largest value of a dim that kernels compute in ``bits`` bits, with room for the tile that reaches
    past its end."""
    return (1 << (bits - 1)) - 1 - _TILE_ROOM


@dataclass(frozen=True)
class Guard:
    """A conjunction over one dim. ``eq`` pins it; else ``div`` divides it and ``min`` <= dim <= ``max``
    (None: unbounded). ``Guard()`` admits every value ("dynamic")."""

    eq: int | None = None
    div: int = 1
    min: int | None = None
    max: int | None = None

    def admits(self, value: int) -> bool:
        """Whether ``value`` satisfies the guard."""
        if self.eq is not None:
            return value == self.eq
        low = self.min is None or value >= self.min
        high = self.max is None or value <= self.max
        return low and high and value % self.div == 0

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
