"""What the functions of a manifest have to be: a reference takes what the kernel reads and gives what it
writes, and the function for inputs gives what it reads.

One that is otherwise is an error: a check without it would pass, beside the interpreter alone or with no
case."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tilec.errors import Place, SourceError
from tilec.spelling import counted


def error_text(function: Callable[..., Any] | None, error: Exception) -> str:
    """What a function raised, and the innermost line of its file that did."""
    text = f"{type(error).__name__}: {error}"
    place = _place(function) if function is not None else None
    if place is None:
        return text
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == place.file]
    return f"{text} ({Place(place.file, lines[-1])})" if lines else text


def require_inputs(reference: Callable[..., Any], names: Sequence[str]) -> None:
    """Raises SourceError for a reference that cannot be called with the parameters that a kernel reads."""
    try:
        signature = inspect.signature(reference)
    except (TypeError, ValueError):  # of a function in C, which says so itself when it is called
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        raise SourceError(
            f"the reference {_name(reference)} does not take what the kernel reads",
            place=_place(reference),
            why=str(error),
            remedy=f"give it one parameter for each of {', '.join(names)}",
        ) from error


def require_outputs(reference: Callable[..., Any], outputs: Sequence[Any], names: Sequence[str]) -> None:
    """Raises SourceError for a reference that gave another number of outputs than the kernel writes."""
    why = "each of them is compared with a tensor that the kernel writes"
    _require(
        reference,
        f"the reference {_name(reference)} gave {counted(len(outputs), 'output')}",
        why,
        outputs,
        names,
    )


def require_values(inputs: Callable[..., Any], values: Sequence[Any], names: Sequence[str]) -> None:
    """Raises SourceError for a function that gave another number of arguments than the kernel reads."""
    why = "a tensor that the kernel writes, and reads as well, has contents before a call"
    _require(inputs, f"the inputs of {_name(inputs)} are {len(values)}", why, values, names)


def _require(
    function: Callable[..., Any], what: str, why: str, given: Sequence[Any], names: Sequence[str]
) -> None:
    if len(given) == len(names):
        return
    raise SourceError(
        f"{what} of {len(names)}",
        place=_place(function),
        why=why,
        remedy=f"return {', '.join(names)}, in this order",
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def _place(function: Callable[..., Any]) -> Place | None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else None
