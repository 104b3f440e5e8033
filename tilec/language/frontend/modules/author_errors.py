"""Exceptions of the author's own code, as they leave the frontend: of their own class, with their own
arguments, and with the line they come from."""

from __future__ import annotations

import inspect
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilec.errors import (
    Place,
    SourceAssertionError,
    SourceError,
    SourceIndexError,
    SourceRuntimeError,
    SourceTypeError,
    SourceValueError,
)
from tilec.language.values.kernel.namespace import namespace
from tilec.language.values.kernel.places import operands_of
from tilec.language.values.other_names import ARGUMENTS
from tilec.language.values.value import is_symbolic
from tilec.spelling import nearest

if TYPE_CHECKING:
    from types import FrameType

_CALL = re.compile(r"[\w.]+(?=\()")
#: How Python, NumPy and torch speak of an expression or a buffer that their code does not take.
_OPERANDS = re.compile(r"\b(?:Value|Element|Buffer|Slice)\b|^only integers, slices|^setting an array element")
#: How Python speaks of an expression that is indexed.
_INDEXED = re.compile(r"^'(?:Value|BlockIndex|Word)' object is not subscriptable")
#: How Python speaks of a call with other arguments than a function has.
_ARGUMENTS = re.compile(r"^(\w+)(?:\.__init__)?\(\) (?:got|missing|takes) (?:.*keyword argument '(\w+)')?")
#: The names of a launch without brackets around them.
_LAUNCH_NAMES = re.compile(r"^\d+ \| with .+\bas (\w+(?:\s*,\s*\w+)+)\s*:")
_OF_EXPRESSIONS = (
    "Python, NumPy and torch compute while the kernel is built, when expressions have no value yet",
    "use what T has for it (T.sqrt, T.max), and pass a table that expressions index as a tensor",
)
_OF_CODE = (
    "the kernel's Python code raised while it was elaborated",
    "correct the code, or the dims, args and config it was given",
)
_OF_PARTS = ("an expression is one number, which has no parts", "use it as it is, or index a buffer")
_OF_RECURSION = (
    "a function or a macro calls itself, and nothing that is known while building ends it",
    "test a Python number in front of the call, or write a loop",
)
#: Classes whose `SourceError` has a name.
_NAMED: dict[type[BaseException], type[SourceError]] = {
    AssertionError: SourceAssertionError,
    IndexError: SourceIndexError,
    ValueError: SourceValueError,
    TypeError: SourceTypeError,
    RuntimeError: SourceRuntimeError,
}


def author_error(error: BaseException, kernel: str, place: Place | None) -> SourceError:
    """``error``, raised by the code of ``kernel``, as a `SourceError` that is also of the error's class: who
    catches it finds its ``args`` and attributes."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    why, remedy = _reason(error, place)
    parts = {
        "what": f"kernel {kernel}: {text}",
        "place": place,
        "why": why,
        "given": "",
        "remedy": remedy,
    }
    return _rebuilt(type(error), error.args, {**vars(error), **parts})


def _reason(error: BaseException, place: Place | None) -> tuple[str, str]:
    """Why the author's code raises an error, and what to do."""
    if _INDEXED.match(str(error)):
        return _OF_PARTS
    if _OPERANDS.search(str(error)) or (isinstance(error, KeyError) and is_symbolic(*error.args)):
        return _OF_EXPRESSIONS
    if isinstance(error, RecursionError):
        return _OF_RECURSION
    return _of_arguments(error, place) or _of_launch_names(error, place) or _OF_CODE


def _of_launch_names(error: BaseException, place: Place | None) -> tuple[str, str] | None:
    """That of the second name of a launch, which Python looks up where no brackets are around the names."""
    text = (place.excerpt() if place is not None else []) or [""]
    found = _LAUNCH_NAMES.match(text[0]) if isinstance(error, NameError) else None
    if found is None or error.name not in re.split(r"\s*,\s*", found[1]):  # type: ignore[attr-defined]
        return None
    return "behind a comma Python expects another thing to enter, not a name for it", f"write as ({found[1]})"


def _of_arguments(error: BaseException, place: Place | None) -> tuple[str, str] | None:
    """That of a function of the language which is called with other arguments than it has."""
    found = _ARGUMENTS.match(str(error)) if isinstance(error, TypeError) else None
    if found is None or not _called(place).endswith(f".{found[1]}"):
        return None
    name, parameters = _signature(found[1])
    near = _meant(found[2], [each.name for each in parameters]) if found[2] else None
    remedy = f"did you mean {near}?" if near else "give what it takes, in this order or by name"
    return (f"{name} takes {_shown(parameters)}", remedy) if name else None


def _meant(argument: str, known: list[str]) -> str | None:
    """The argument that somebody probably meant who gave one that is not known."""
    other = ARGUMENTS.get(argument)
    return other if other in known else nearest(argument, known)


def misuse_error(error: BaseException, kernel: str, place: Place | None, called: FrameType) -> SourceError:
    """``error``, raised inside of a function of the language that the code of ``kernel`` called: it was given
    what it does not take."""
    name, parameters = _signature(called.f_code.co_name)
    shown = f"it takes {_shown(parameters)}" if name else ""
    name = name or _called(place)
    kind = SourceValueError if isinstance(error, ValueError) else SourceTypeError
    return kind(
        f"kernel {kernel}: {name} cannot use what it was given",
        place=place,
        why=f"{type(error).__name__}: {error}".splitlines()[0],
        given=operands_of(called),
        remedy=shown or "give numbers, expressions and buffers where it takes them",
    )


def is_misuse(error: BaseException, called: FrameType) -> bool:
    """Whether ``called``, a function of the language, raised ``error`` without meaning to, over arguments of
    a wrong kind: Python's errors and TVM's, but for names that do not exist, which are said already."""
    kinds = (AttributeError, TypeError, ValueError, IndexError, KeyError)
    ours = isinstance(error, kinds) or type(error).__module__.startswith("tvm")
    return ours and called.f_code.co_name != "__getattr__"


def _called(place: Place | None) -> str:
    """What is called at a place, by the text there."""
    text, carets = (place.excerpt() if place is not None else []) or ("", "")
    found = _CALL.match(text[max(0, carets.find("^")) :])
    return found.group() if found else "the statement"


def _signature(function: str) -> tuple[str, list[inspect.Parameter]]:
    """The name that the language has for a function, and its parameters; nothing for what is none of its."""
    language = namespace()
    name = function.rstrip("_")
    if name not in dir(language) or not callable(getattr(language, name)):
        return "", []
    return f"T.{name}", list(inspect.signature(getattr(language, name)).parameters.values())


def _shown(parameters: list[inspect.Parameter]) -> str:
    plain = (parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters)
    return f"({', '.join(map(str, plain))})"


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
    if issubclass(kind, MemoryError):  # Python makes no object of what derives from it and others
        return nearest

    def reduce(self: SourceError) -> tuple[Any, ...]:
        return (_rebuilt, (kind, self.args, vars(self)))

    try:
        return type(kind.__name__, (SourceError, kind), {"__module__": __name__, "__reduce__": reduce})
    except TypeError:  # of another layout in memory, or not to be derived from
        return nearest
