"""Python source that is written from device code, and what its parts refer to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilec.emulate.state.numbers import TYPES


@dataclass(frozen=True)
class Value:
    """Source of a value and its dtype."""

    code: str
    dtype: str


@dataclass(frozen=True)
class Pointer:
    """A pointer: ``space`` is "global", "shared" (``base`` the source of the Memory, ``offset`` of bytes),
    "local" (``base`` the source of a `Registers`, ``offset`` of elements) or "map" (``base`` the source of a
    tensor map). ``dtype`` is what it points to."""

    space: str
    base: str
    offset: str
    dtype: str


Operand = Value | Pointer


@dataclass
class Writer:
    """The lines of one function. ``mask`` is the name of the mask in force; names are never reused."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    mask: str = "m"
    names: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))
    waits: bool = False

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str = "t") -> str:
        """A new name."""
        return f"{prefix}{next(self.names)}"

    def hold(self, code: str, prefix: str = "t") -> str:
        """A name for a value."""
        if code.isidentifier():
            return code
        made = self.name(prefix)
        self.line(f"{made} = {code}")
        return made

    @contextmanager
    def inner(self, head: str, mask: str | None = None) -> Iterator[None]:
        """The lines of a block under ``head``, with another mask."""
        before = self.mask
        self.line(head)
        self.depth += 1
        start = len(self.lines)
        self.mask = mask or before
        yield
        if len(self.lines) == start:
            self.line("pass")
        self.depth -= 1
        self.mask = before


def is_integer(dtype: str) -> bool:
    """Whether values of a dtype are integers."""
    return dtype[0] in "iu"


def size_of(dtype: str) -> int:
    """Bytes of one element."""
    return TYPES[dtype].itemsize


@dataclass
class Constants:
    """Objects that source refers to by name."""

    values: list[Any] = field(default_factory=list)

    def of(self, value: Any) -> str:
        """The source of an object."""
        self.values.append(value)
        return f"K[{len(self.values) - 1}]"
