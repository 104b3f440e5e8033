"""What a process does once, such as telling TVM how functions are computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock


def once(function: Callable[[], None]) -> Callable[[], None]:
    """``function``, which runs at the first call; calls from other threads wait until it has ended, where
    `functools.cache` would run it a second time. Where it raises, the next call runs it again."""
    kept, lock = cache(function), Lock()

    @wraps(function)
    def call() -> None:
        with lock:
            kept()

    return call
