"""Microseconds of one call from replays of CUDA graphs, after pauses or back to back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

_PAUSE = 0.02  # seconds in which the GPU cools down
_BATCH_US = 4000.0  # of one replay
_MOST_CALLS = 400
#: Clocks for which the GPU spins in front of what is timed, some 0.2 ms: the CPU has asked for all of it by
#: then. Without it the launch of a replay counts: up to 0.2 us of each call that takes a microsecond.
_AHEAD = 400_000
ROUNDS = 9
_SUSTAINED_US = 150_000.0
Call = Callable[[int], Any]


class Contestant:
    """``call(i)`` does the work on input set i of ``sets``; calls go through the sets in turn."""

    def __init__(self, name: str, call: Call, sets: int) -> None:
        self.name = name
        self._call = call
        for number in range(max(2, sets)):
            call(number % sets)
        count = int(_BATCH_US / max(events(lambda: call(0)), 1.0))
        self._calls = max(sets, min(_MOST_CALLS, count) // sets * sets)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for number in range(self._calls):
                call(number % sets)

    def after_pause(self) -> float:
        """One call's time, the GPU having rested."""
        torch.cuda.synchronize()
        time.sleep(_PAUSE)
        self._call(0)
        return events(self._graph.replay) / self._calls

    def sustained(self) -> float:
        """One call's time when nothing else has run for long enough to reach the power limit."""
        replays = max(2, int(_SUSTAINED_US / max(self.after_pause() * self._calls, 1.0)))
        for _ in range(replays):
            self._graph.replay()
        return events(lambda: [self._graph.replay() for _ in range(replays)]) / (replays * self._calls)


def cool(contestants: list[Contestant], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Median and range by name, measured in rounds, every second one in the opposite order."""
    times: dict[str, list[float]] = {each.name: [] for each in contestants}
    for number in range(rounds):
        for each in contestants if number % 2 else contestants[::-1]:
            times[each.name].append(each.after_pause())
    return {
        name: {"us": statistics.median(found), "least": min(found), "most": max(found)}
        for name, found in times.items()
    }


def sustained(contestants: list[Contestant]) -> dict[str, float]:
    """The mean of two runs by name, there and back."""
    there, back = (
        [(each.name, each.sustained()) for each in order] for order in (contestants, contestants[::-1])
    )
    return {name: (time + dict(back)[name]) / 2 for name, time in there}


def events(work: Callable[[], Any]) -> float:
    """Microseconds on the GPU of what the CPU asks for while that spins."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(_AHEAD)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3
