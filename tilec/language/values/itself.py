"""Keys of dicts that stand for objects themselves, whatever these say of hash and equality."""

from __future__ import annotations

from typing import Any


class Itself:
    """A key that stands for an object, which may have no hash and be equal to others."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and self.target is other.target

    def __hash__(self) -> int:
        return object.__hash__(self.target)
