"""What the names of a kernel function hold, and which Python numbers runtime regions would have to change.

A Python number has one value while building. Where a runtime region rebinds it, a read after the region (or
in the next trip of a loop) would get a value that depends on the run: such reads are errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError
from tilec.language.values.builder import LOOPS, Builder, Frame
from tilec.language.values.places import source_error
from tilec.language.values.value import is_number


class _Binding:
    """A value, the region it was bound in, and whether it replaced something else from outside of it."""

    __slots__ = ("frame", "read_in", "rebound", "value")

    def __init__(self, value: Any, frame: Frame, rebound: bool) -> None:
        self.value = value
        self.frame = frame
        self.rebound = rebound
        self.read_in: Frame | None = None


class Bindings:
    """The names of one run of a function."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._names: dict[str, _Binding] = {}

    def value(self, name: str) -> Any:
        """What the name holds; None if it holds nothing yet."""
        held = self._names.get(name)
        return None if held is None else held.value

    def forget(self, names: Iterable[str]) -> None:
        """The names hold nothing any more."""
        for name in names:
            self._names.pop(name, None)

    def hold(self, name: str, value: Any) -> Any:
        """Bind the name in the current region. Raises `SourceRuntimeError` for a number that a loop
        carries."""
        held, frame = self._names.get(name), self._builder.region()
        rebound = False
        if held is not None:
            numbers = is_number(held.value) and is_number(value)
            changed = not numbers or held.value != value
            if numbers and changed and self._carried(held):
                raise _stale(name)
            rebound = held.rebound if held.frame is frame else changed
        self._names[name] = _Binding(value, frame, rebound)
        return value

    def read(self, name: str, value: Any) -> Any:
        """``value``, which the name holds. Raises `SourceRuntimeError` for a number of a closed region."""
        held = self._names.get(name)
        if held is None or held.value is not value or not is_number(value):
            return value
        if held.rebound and not held.frame.open:
            raise _stale(name)
        held.read_in = self._loop()
        return value

    def check_unchanged(self, name: str, frame: Frame) -> None:
        """Raise `SourceRuntimeError` if ``frame`` bound the name to a number."""
        held = self._names.get(name)
        if held is not None and is_number(held.value) and held.frame is frame:
            raise _stale(name)

    def _loop(self) -> Frame | None:
        return next((frame for frame in reversed(self._builder.frames) if frame.kind in LOOPS), None)

    def _carried(self, held: _Binding) -> bool:
        """Whether a loop that is open now read the number from outside before this rebinding of it."""
        loop = held.read_in
        if loop is None or not loop.open:
            return False
        return loop.encloses(self._builder.top) and not loop.encloses(held.frame)


def _stale(name: str) -> SourceError:
    return source_error(
        SourceRuntimeError,
        f"{name} holds a Python number that a runtime region rebinds",
        construct=name,
        why="a Python number has one value while building: trips and branches cannot change it",
        remedy=f"make {name} a variable: {name} = T.alloc_var(dtype)",
    )
