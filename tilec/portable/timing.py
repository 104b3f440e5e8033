"""How long a call takes: samples, their distribution, contestants in turn. Needs the standard library alone,
so that what measures on a machine without the toolchain can carry this file along."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

#: Seconds of rest before a sample on a device that runs at a lower clock when it has just worked.
PAUSE = 0.02
#: Seconds that a sample lasts at least: far above what reading the clock costs (about 50 ns).
SHORTEST_SAMPLE = 20e-6
#: Samples of a distribution: fewer say nothing about its tail, more take time.
FEWEST_SAMPLES, MOST_SAMPLES = 9, 2000
#: Calls behind each other, at most, that make one sample.
MOST_CALLS = 10_000
_WARM_UP_CALLS, _WARM_UP_SECONDS = 3, 0.05

#: ``call(i)`` does the work on input set ``i``.
Call = Callable[[int], object]


@dataclass(frozen=True)
class Timing:
    """``samples``: seconds of one call, ascending; each is the mean of ``calls`` calls in a row."""

    samples: tuple[float, ...]
    calls: int

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.samples)

    @property
    def least(self) -> float:
        """Seconds of the fastest sample."""
        return self.samples[0]

    def percentile(self, share: float) -> float:
        """Seconds that ``share`` percent of the samples do not exceed (nearest rank)."""
        rank = -(-share * len(self.samples) // 100)
        return self.samples[min(len(self.samples) - 1, max(0, int(rank) - 1))]


class Sampler(Protocol):
    """One contestant. ``calls`` is how many calls make a sample."""

    calls: int

    def sample(self) -> float:
        """Seconds of one call: the mean over ``calls`` of them."""


class CallSampler:
    """Calls of a function through ``sets`` input sets in turn, whose work is done when they return, or else
    when ``finish`` does, which ends each sample. Making one warms up, and finds how many calls last for
    ``shortest`` seconds, which the clock can resolve."""

    def __init__(
        self,
        call: Call,
        sets: int = 1,
        *,
        shortest: float = SHORTEST_SAMPLE,
        clock: Callable[[], float] = time.perf_counter,
        finish: Callable[[], object] | None = None,
    ) -> None:
        self._call, self._sets, self._clock = call, sets, clock
        self._finish = finish or _nothing
        self._next = 0
        self.calls = 1
        self._warm_up()
        while self.calls < MOST_CALLS and self.sample() * self.calls < shortest:
            self.calls *= 2

    def sample(self) -> float:
        """Seconds of one call."""
        call, sets, first = self._call, self._sets, self._next
        order = [number % sets for number in range(first, first + self.calls)]
        start = self._clock()
        for number in order:
            call(number)
        self._finish()
        taken = self._clock() - start
        self._next = (first + self.calls) % sets
        return taken / self.calls

    def _warm_up(self) -> None:
        """Every set once, and on until caches and clocks have had time."""
        start, done = self._clock(), 0
        while done < max(self._sets, _WARM_UP_CALLS) or (
            done < MOST_CALLS and self._clock() - start < _WARM_UP_SECONDS
        ):
            self._call(done % self._sets)
            done += 1
        self._finish()


def _nothing() -> None:
    """Work is done already."""


def measure(
    samplers: Mapping[str, Sampler],
    *,
    seconds: float = 0.5,
    fewest: int = FEWEST_SAMPLES,
    most: int = MOST_SAMPLES,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """The timings of contestants by name. They take turns, every second round in the opposite order, so that
    a machine that slows down slows all of them down. Rounds go on for ``seconds`` for each contestant, but
    there are ``fewest`` to ``most`` of them."""
    order: Sequence[tuple[str, Sampler]] = list(samplers.items())
    found: dict[str, list[float]] = {name: [] for name in samplers}
    end, rounds = clock() + seconds * len(order), 0
    while rounds < fewest or (rounds < most and clock() < end):
        for name, sampler in order if rounds % 2 == 0 else order[::-1]:
            found[name].append(sampler.sample())
        rounds += 1
    return {name: Timing(tuple(sorted(found[name])), sampler.calls) for name, sampler in order}
