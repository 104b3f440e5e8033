"""Calls through the library's tvm-ffi door: the shortest way from Python for torch tensors and NumPy arrays.

The door checks as the loader does. What tvm-ffi itself cannot pass on (read-only arrays, element types that
NumPy does not export) has not run, and goes through the loader, whose errors do not mention the door."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilec.portable.loader import is_negated, lacks_memory

#: What tvm-ffi raises for arguments that it cannot pass on.
_CANNOT_PASS = (BufferError, TypeError)


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether the tvm-ffi package is installed."""
    return importlib.util.find_spec("tvm_ffi") is not None


def is_quick_to_import() -> bool:
    """Whether tvm-ffi is there without an import of torch, which takes a second, for a caller who has none:
    it imports torch wherever that is installed."""
    return not {"tvm_ffi", "torch"}.isdisjoint(sys.modules) or importlib.util.find_spec("torch") is None


def fast_call(
    path: Path,
    function: str,
    count: int,
    places: Sequence[int],
    kind: type,
    slow: Callable[..., Any],
) -> Callable[..., Any]:
    """A call of ``function`` in the library for ``count`` arguments in order, whose first tensor is a
    ``kind``; ``slow`` for every other call, and where there is no faster way for such tensors, or it would
    take a second to import. ``places``: which of the library's outputs a call returns, in order."""
    convert = _conversion(kind)
    if convert is None or not is_available() or not is_quick_to_import():
        return slow
    import tvm_ffi

    door = getattr(tvm_ffi.load_module(str(path)), function)
    if convert is _as_it_is and len(places) == 1:
        return _direct(door, count, slow)
    if len(places) == 1:
        return _converted(door, count, slow, convert)
    return _converted(door, count, slow, lambda made: [convert(made[place]) for place in places])


def _direct(door: Callable[..., Any], count: int, slow: Callable[..., Any]) -> Callable[..., Any]:
    """Calls of ``door`` that return what it gives."""

    def call(*args: Any) -> Any:
        if len(args) != count:
            return slow(*args)
        try:
            return door(*args)
        except Exception as error:
            if _has_passed(error, args):
                raise
        return slow(*args)

    return call


def _converted(
    door: Callable[..., Any], count: int, slow: Callable[..., Any], convert: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Calls of ``door`` that return what ``convert`` makes of what it gives."""

    def call(*args: Any) -> Any:
        if len(args) != count:
            return slow(*args)
        try:
            made = door(*args)
        except Exception as error:
            if _has_passed(error, args):
                raise
        else:
            return convert(made)
        return slow(*args)

    return call


def unless_negated(fast: Callable[..., Any], slow: Callable[..., Any]) -> Callable[..., Any]:
    """``fast`` for arguments of any strides, which may be views that torch has yet to negate: tvm-ffi takes
    these for what their memory holds, and ``slow`` refuses them."""

    def call(*args: Any) -> Any:
        return slow(*args) if any(map(is_negated, args)) else fast(*args)

    return call


def _has_passed(error: Exception, args: Sequence[Any]) -> bool:
    """Whether an error is the library's own: torch raises RuntimeError for tensors that it cannot pass on."""
    return not isinstance(error, _CANNOT_PASS) and not any(map(lacks_memory, args))


def _conversion(kind: type) -> Callable[[Any], Any] | None:
    """What makes an output of one of tvm-ffi; None for tensors that the loader serves better."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and issubclass(kind, torch.Tensor):
        return _as_it_is
    if numpy is not None and issubclass(kind, numpy.ndarray):
        from_dlpack: Callable[[Any], Any] = numpy.from_dlpack
        return from_dlpack
    return None


def _as_it_is(output: Any) -> Any:
    """The environment of a call with torch tensors gives torch tensors."""
    return output
