"""Sampling, on a clock that the test moves."""

from __future__ import annotations

import pytest

from tilec.portable.timing import CallSampler, Timing, measure


class Clock:
    """A clock that stands still but for `spend`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_percentiles_are_samples() -> None:
    timing = Timing(tuple(float(number) for number in range(1, 101)), 1)
    assert (timing.least, timing.percentile(0), timing.percentile(99), timing.percentile(100)) == (
        1,
        1,
        99,
        100,
    )
    assert timing.median == 50.5
    assert Timing((3.0,), 1).percentile(99) == 3.0


@pytest.mark.parametrize(("cost", "calls"), [(1e-3, 1), (30e-6, 1), (1e-6, 32), (0.0, 16384)])
def test_a_sample_is_long_enough_for_the_clock(cost: float, calls: int) -> None:
    clock = Clock()
    sampler = CallSampler(lambda number: clock.spend(cost), clock=clock)
    assert sampler.calls == calls
    assert sampler.sample() == pytest.approx(cost)


def test_input_sets_take_turns_across_samples() -> None:
    clock, seen = Clock(), []

    def call(number: int) -> None:
        seen.append(number)
        clock.spend(8e-6)

    sampler = CallSampler(call, sets=3, clock=clock)
    assert sampler.calls == 4
    seen.clear()
    first = [sampler.sample() for _ in range(3)]
    assert first == pytest.approx([8e-6] * 3)
    turns = [(seen[0] + number) % 3 for number in range(12)]
    assert seen == turns


def test_contestants_take_turns_and_every_second_round_is_reversed() -> None:
    clock, seen = Clock(), []

    class Fixed:
        calls = 1

        def __init__(self, name: str) -> None:
            self.name = name

        def sample(self) -> float:
            seen.append(self.name)
            clock.spend(1.0)
            return float(len(seen))

    found = measure({"a": Fixed("a"), "b": Fixed("b")}, seconds=2.0, fewest=2, most=50, clock=clock)
    assert seen == ["a", "b", "b", "a"]
    assert found["a"].samples == (1.0, 4.0)
    seen.clear()
    assert len(measure({"a": Fixed("a")}, seconds=0.0, fewest=5, clock=clock)["a"].samples) == 5
    assert len(measure({"a": Fixed("a")}, seconds=1e9, most=12, clock=clock)["a"].samples) == 12
