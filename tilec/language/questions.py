"""Questions that authors' code asks torch about the device at hand: a build has none, so that the answers
raise when something uses them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tilec.language.places import unsupported

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


@contextmanager
def without_a_device() -> Iterator[None]:
    """In the block, questions to torch, where it is loaded, are answered with an `Unanswered`."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    held = {name: getattr(cuda, name) for name in _QUESTIONS if hasattr(cuda, name)}
    for name in held:
        setattr(cuda, name, _answer(f"torch.cuda.{name}()"))
    try:
        yield
    finally:
        for name, function in held.items():
            setattr(cuda, name, function)


def _answer(question: str) -> Callable[..., Unanswered]:
    return lambda *_args, **_kwargs: Unanswered(question)
