"""Questions that authors' code asks torch about the device at hand: a build has none, so that the answers
raise when something uses them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tilec.language.values.kernel.places import unsupported

#: Of ``torch.cuda``; ``is_available`` chooses devices for test code and decides nothing about kernels.
_QUESTIONS = (
    "current_device",
    "device_count",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "mem_get_info",
)


class Unanswered:
    """What a build answers: any use of it is an error that names the question."""

    def __init__(self, question: str) -> None:
        self.__dict__["question"] = question

    def _refuse(self, *_args: Any) -> NoReturn:
        raise unsupported(
            f"{self.__dict__['question']} in a build",
            why="the library is built without a device, and one library serves several",
            remedy="pass what depends on the device as a config key of each target",
        )

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    __getitem__ = __iter__ = __len__ = __bool__ = __index__ = __int__ = __float__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _refuse
    __hash__ = object.__hash__


class _Builds:
    """Who is building: torch's functions are replaced while anybody is, and answer others as ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._held: dict[str, Callable[..., Any]] = {}
        self._mine = threading.local()

    def enter(self, cuda: Any) -> None:
        """This thread builds."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._held = {name: getattr(cuda, name) for name in _QUESTIONS if hasattr(cuda, name)}
                for name, function in self._held.items():
                    setattr(cuda, name, self._answer(f"torch.cuda.{name}()", function))
        self._mine.depth = getattr(self._mine, "depth", 0) + 1

    def leave(self, cuda: Any) -> None:
        """It does no more."""
        self._mine.depth -= 1
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for name, function in self._held.items():
                    setattr(cuda, name, function)

    def _answer(self, question: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> Any:
            building = getattr(self._mine, "depth", 0) > 0
            return Unanswered(question) if building else function(*args, **kwargs)

        return answer


_builds = _Builds()


@contextmanager
def without_a_device() -> Iterator[None]:
    """In the block, this thread's questions to torch, where it is loaded, are answered with an
    `Unanswered`."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None:
        yield
        return
    _builds.enter(cuda)
    try:
        yield
    finally:
        _builds.leave(cuda)
