"""Exceptions of the author's own code, as they leave the frontend: of their own class, with their own
arguments, and with the line they come from."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilec.errors import (
    Place,
    SourceAssertionError,
    SourceError,
    SourceIndexError,
    SourceRuntimeError,
    SourceTypeError,
    SourceValueError,
)

#: Classes whose `SourceError` has a name.
_NAMED: dict[type[BaseException], type[SourceError]] = {
    AssertionError: SourceAssertionError,
    IndexError: SourceIndexError,
    ValueError: SourceValueError,
    TypeError: SourceTypeError,
    RuntimeError: SourceRuntimeError,
}


def authored(error: BaseException, kernel: str, place: Place | None) -> SourceError:
    """``error``, raised by the code of ``kernel``, as a `SourceError` that is also of the error's class: who
    catches it finds its ``args`` and attributes."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    parts = {
        "what": f"kernel {kernel}: {text}",
        "place": place,
        "why": "the kernel's Python code raised while it was elaborated",
        "given": "",
        "remedy": "correct the code, or the dims, args and config it was given",
    }
    return _rebuilt(type(error), error.args, {**vars(error), **parts})


def _rebuilt(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> SourceError:
    cls = _class_for(kind)
    made = cls.__new__(cls, *args)  # their __init__ has run once
    made.args = args
    vars(made).update(state)
    return made


@lru_cache(maxsize=256)
def _class_for(kind: type[BaseException]) -> type[SourceError]:
    """The `SourceError` that derives from ``kind``; the nearest one that exists where none can."""
    if kind in _NAMED:
        return _NAMED[kind]
    nearest = next((own for builtin, own in _NAMED.items() if issubclass(kind, builtin)), SourceError)

    def reduce(self: SourceError) -> tuple[Any, ...]:
        return (_rebuilt, (kind, self.args, vars(self)))

    try:
        return type(kind.__name__, (SourceError, kind), {"__module__": __name__, "__reduce__": reduce})
    except TypeError:  # of another layout in memory, or not to be derived from
        return nearest
