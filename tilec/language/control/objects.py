"""What Python objects hold that the names of a kernel function lead to: runtime regions may not change it.

A list, a dict or an author's object changes while the kernel is built, once, where the statement of a loop
runs often and that of a branch perhaps never. What was made in the region, for one trip, may change there.
"""

from __future__ import annotations

import gc
import operator
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from types import GeneratorType
from typing import Any

from tilec.errors import SourceError, SourceRuntimeError
from tilec.language.control.bindings import is_same
from tilec.language.values.itself import Itself
from tilec.language.values.kernel.builder import LOOPS, Builder, Frame
from tilec.language.values.kernel.places import source_error

_CONTAINERS = (list, dict, set, deque, tuple)
#: Roots of modules whose objects are not an author's.
_OTHERS = frozenset(("tilec", "tvm", "tvm_ffi", "builtins", "torch", "numpy", "abc"))
#: How many containers and attributes lie between a name and an object that is looked after.
_DEEPEST = 4


class _Held:
    """An object, the name that leads to it, the region it was met in, and what it held last."""

    __slots__ = ("depth", "frame", "name", "state", "target")

    def __init__(self, target: Any, name: str, frame: Frame, depth: int, state: tuple[Any, ...]) -> None:
        self.target = target
        self.name = name
        self.frame = frame
        self.depth = depth
        self.state = state


class Objects:
    """The Python objects of one run of a function; ``keep`` is what a list or dict of a name does with what
    is put into it beside what it has held before."""

    def __init__(self, builder: Builder, keep: Callable[[Any, str, tuple[Any, ...]], Any]) -> None:
        self._builder = builder
        self._keep = keep
        self._held: dict[Itself, _Held] = {}
        self._changing: list[_Held] = []

    def meet(self, name: str, target: Any, frame: Frame, depth: int = 0) -> None:
        """Look after what ``name`` leads to, as made in ``frame`` unless it is known."""
        key = Itself(target)
        state = None if depth > _DEEPEST or key in self._held else _state(target)
        if state is None:
            return
        self._held[key] = held = _Held(target, name, frame, depth, state)
        if not isinstance(target, tuple):
            self._changing.append(held)
        for item in state:
            self.meet(name, item, frame, depth + 1)

    def settle(self) -> None:
        """A statement is over. Raises `SourceRuntimeError` if it changed in a runtime region what was made
        outside of it."""
        for held in list(self._changing):
            state = _state(held.target) or ()
            if _are_same(held.state, state):
                continue
            if self._is_inside(held.frame):
                raise _changed(held)
            self._keep(held.target, held.name, held.state)
            known = set(map(Itself, held.state))
            held.state = state = _state(held.target) or ()
            for item in state:
                if Itself(item) not in known:
                    self.meet(held.name, item, self._builder.region(), held.depth + 1)

    def _is_inside(self, made: Frame) -> bool:
        """Whether a loop or a branch that is open now does not hold the region ``made``."""
        repeated = [frame for frame in self._builder.frames if frame.kind == "if" or frame.kind in LOOPS]
        return not all(frame.encloses(made) for frame in repeated)


def _state(target: Any) -> tuple[Any, ...] | None:
    """What an object holds, in order; None for what is not looked after."""
    if isinstance(target, dict):
        return (*target.keys(), *target.values())
    if isinstance(target, _CONTAINERS):
        return tuple(target)
    if isinstance(target, GeneratorType):
        frame = target.gi_frame
        return () if frame is None else (frame.f_lasti, *frame.f_locals.values())
    if isinstance(target, Iterator):
        return (operator.length_hint(target, -1), repr(target), *gc.get_referents(target))
    if type(target).__module__.partition(".")[0] in _OTHERS or not hasattr(target, "__dict__"):
        return None
    return tuple(value for name, value in vars(target).items() if not _is_derived(target, name))


def _is_derived(target: Any, name: str) -> bool:
    """Whether an attribute is kept of what others give: the first read of it changes nothing."""
    return isinstance(getattr(type(target), name, None), cached_property)


def _are_same(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    if len(before) != len(now):
        return False
    return all(map(operator.is_, before, now)) or all(map(is_same, before, now))


def _changed(held: _Held) -> SourceError:
    return source_error(
        SourceRuntimeError,
        f"a runtime region changes what {held.name} holds, a Python {type(held.target).__name__}",
        construct=held.name,
        why="Python objects change while the kernel is built: once for all trips of a loop, and whether a "
        "branch is taken or not",
        remedy="make it in the region if it serves one trip; else use a tile or a T.alloc_var, or loop over "
        "a Python list, which is expanded while building",
    )
