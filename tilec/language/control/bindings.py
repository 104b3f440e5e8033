"""What the names of a kernel function hold, and which of them runtime regions would have to change.

A name holds one value while building, be it a number, an expression or a buffer. Where a runtime region
rebinds it, a read after the region (or in the next trip of a loop) would get what depends on the run: such
reads are errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError
from tilec.language.values.kernel.builder import LOOPS, Builder, Frame
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import is_tile
from tilec.language.values.value import Value, is_number, outlived


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

    def sides(self, names: Iterable[str]) -> Sides:
        """What names hold in front of a branch."""
        return Sides(self._names, names)

    def hold(self, name: str, value: Any) -> Any:
        """Bind the name in the current region. Raises `SourceRuntimeError` for what a loop would carry."""
        held, frame = self._names.get(name), self._builder.region()
        rebound = False
        if held is not None:
            changed = not is_same(held.value, value)
            if changed and self._carried(held):
                raise _stale(name, held.value)
            rebound = held.rebound if held.frame is frame else changed and frame.kind != "kernel"
        self._names[name] = _Binding(value, frame, rebound)
        return value

    def read(self, name: str, value: Any) -> Any:
        """``value``, which the name holds. Raises `SourceRuntimeError` for what a closed region put there."""
        held = self._names.get(name)
        if held is None or held.value is not value:
            return value
        if held.rebound and not held.frame.open:
            raise _stale(name, value)
        held.read_in = self._loop_around(held)
        return value

    def check_unchanged(self, name: str, frame: Frame) -> None:
        """Raise `SourceRuntimeError` if something in ``frame`` bound the name."""
        held = self._names.get(name)
        if held is not None and frame.encloses(held.frame):
            raise _stale(name, held.value)

    def _loop_around(self, held: _Binding) -> Frame | None:
        """The outermost loop whose trips find what the name held in front of it. Of a T.Parallel no iteration
        has another's expressions: there a name is rebound for one of them."""
        loops = [frame for frame in self._builder.frames if frame.kind in LOOPS]
        if loops and loops[-1].kind == "parallel" and isinstance(held.value, Value):
            return None
        return next((frame for frame in loops if not frame.encloses(held.frame)), None)

    def _carried(self, held: _Binding) -> bool:
        """Whether a loop that is open now read the name from outside before this rebinding of it."""
        loop = held.read_in
        return loop is not None and loop.open and loop.encloses(self._builder.top)


class Sides:
    """Names at the sides of a branch: what the first side makes of them the other one does not see, and
    behind both sides a name is what the last of them made of it."""

    def __init__(self, bound: dict[str, _Binding], names: Iterable[str]) -> None:
        self._bound = bound
        self._before = {name: bound[name] for name in names if name in bound}
        self._first: dict[str, _Binding] = {}

    def turns(self, name: str) -> bool:
        """In front of the other side: whether the name holds what it held before the first one again."""
        before, first = self._before.get(name), self._bound.get(name)
        if before is None or first is None or first is before:
            return False
        self._first[name], self._bound[name] = first, before
        return True

    def leaves(self, name: str) -> bool:
        """Behind the other side: whether the name, which that side has left alone, holds what the first one
        made of it again."""
        if name not in self._first or self._bound.get(name) is not self._before[name]:
            return False
        self._bound[name] = self._first[name]
        return True

    def held(self, name: str) -> Any:
        """What the name holds."""
        return self._bound[name].value


def is_same(held: Any, value: Any) -> bool:
    """Whether a name that gets ``value`` holds what it held."""
    told = (is_number(held) and is_number(value)) or type(held) is type(value) is str
    return held is value or (told and bool(held == value))


def _stale(name: str, held: Any) -> SourceError:
    """That a name would hold what depends on the run; it is said of expressions as `check_alive` says it."""
    what, remedy = _told(name, held)
    rebound = f"{name} holds {what} that a runtime region rebinds"
    return source_error(
        SourceRuntimeError,
        outlived(name) if isinstance(held, Value) else rebound,
        construct=name,
        why=f"{what} has one value while building: trips and branches cannot change it",
        remedy=remedy,
    )


def _told(name: str, held: Any) -> tuple[str, str]:
    """What a name holds, in words, and what to write instead."""
    variable = f"make {name} a variable: {name} = T.alloc_var(dtype)"
    if is_number(held):
        return "a Python number", variable
    if isinstance(held, Value):
        return "a name of an expression", variable
    if is_tile(held):
        return "a buffer", "copy, or index one buffer of more axes with a T.alloc_var"
    return "a Python object", "do in each branch what depends on it, or test a T.alloc_var"
