"""An end for work that takes too long."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")


class TimeoutException(Exception):
    """A config took longer than it may."""


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """What ``call`` returns. Raises `TimeoutException` where it takes longer than ``seconds`` (0: no limit).

    In the main thread a signal ends it, as soon as Python runs again; in another thread it is left behind to
    end by itself. Neither ends a kernel that hangs on a GPU."""
    if seconds <= 0:
        return call()
    in_main = threading.current_thread() is threading.main_thread()
    return _interrupted(seconds, call) if in_main else _left_behind(seconds, call)


def _interrupted(seconds: float, call: Callable[[], Result]) -> Result:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutException(_text(seconds))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _left_behind(seconds: float, call: Callable[[], Result]) -> Result:
    found: dict[str, Any] = {}

    def run() -> None:
        try:
            found["result"] = call()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutException(_text(seconds))
    if "error" in found:
        raise found["error"]
    result: Result = found["result"]
    return result


def _text(seconds: float) -> str:
    return f"it took longer than {seconds} s"
