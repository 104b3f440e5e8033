"""Sides that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

#: Seconds of calls that one round of a side is made of, and of calls before them, in which threads start,
#: wake and find processors of their own; pause between sides that have threads of their own.
_ROUND, _WARM, _PAUSE = 0.01, 0.006, 0.04


def least_seconds(sides: Mapping[str, Callable[[], object]], rounds: int, *, alone: bool) -> dict[str, float]:
    """Seconds of a call of each side, the least of so many rounds; of the thread's CPU time where it is
    ``alone``."""
    clock = time.thread_time if alone else time.perf_counter
    repeats = {name: _repeats(call) for name, call in sides.items()}
    found = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, call in sides.items():
            if not alone:
                time.sleep(_PAUSE)
            found[name] = min(found[name], _seconds(call, repeats[name], clock))
    return found


def _repeats(call: Callable[[], object]) -> int:
    """Calls of a round, by the fastest of three."""
    least = min(_seconds(call, 1, time.perf_counter) for _ in range(3))
    return max(1, int(_ROUND / max(least, 1e-6)))


def _seconds(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    """Mean of so many calls after some that wake threads and fill caches."""
    _warm(call)
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _warm(call: Callable[[], object]) -> None:
    end = time.perf_counter() + _WARM
    call()
    while time.perf_counter() < end:
        call()
