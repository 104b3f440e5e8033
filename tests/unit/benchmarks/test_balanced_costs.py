"""Factors by which costs of a list tell better which schedule is the fastest."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tilec.build.schedules.fit import Times
from tilec.costs import cost

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu" / "costs"
UNITS = 132
#: Of a large and of a small tile: neither is the better one everywhere.
TRUE = (
    "4 + waves(ceil(N / 256) * ceil(M / 128)) * (3 + 0.6 * ceil(K / 64))",
    "2 + waves(ceil(N / 128) * ceil(M / 128)) * (1.8 + 0.31 * ceil(K / 64))",
)
SHAPES = [
    {"M": m, "N": n, "K": k}
    for m, n, k in itertools.product(range(1, 4000, 150), (1000, 4096, 11008), (256, 2048, 8192))
]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def times() -> list[Times]:
    return [Times(dims, {at: cost(text, dims, UNITS) for at, text in enumerate(TRUE)}) for dims in SHAPES]


@pytest.mark.parametrize(
    "text",
    [
        *TRUE,
        "3.5",
        "waves(M)",
        "M * 2 - N",
        "0.2 * max(1, M) + rounds(M * N) * ceil(K / 64) * (0.2878)",
        "waves(ceil(N / 64) * 4 * 1.1) * (1.5 + 0.1 * ceil(ceil(K / 64) / 4))",
    ],
)
def test_a_scaled_cost_is_the_cost_so_many_times(text: str) -> None:
    from balanced import scaled

    for dims in SHAPES:
        assert cost(scaled(text, 1.25), dims, UNITS) == pytest.approx(
            1.25 * cost(text, dims, UNITS), rel=1e-3
        )


def test_what_a_launch_is_made_of_stays() -> None:
    from balanced import scaled

    assert scaled("waves(ceil(N / 64) * 4 * 1.1) * (1.5 + 0.1 * M)", 2) == (
        "waves(ceil(N / 64) * 4 * 1.1) * (3.0 + 0.2 * M)"
    )


def test_costs_that_choose_well_stay(times: list[Times]) -> None:
    from balanced import balanced

    assert balanced(TRUE, times, UNITS) == [1.0, 1.0]


@pytest.mark.parametrize(("at", "off"), [(0, 0.9), (0, 1.1), (1, 0.9), (1, 1.1)])
def test_a_cost_that_is_off_comes_back(times: list[Times], at: int, off: float) -> None:
    from balanced import balanced, mean_loss, scaled

    costs = [scaled(text, off) if number == at else text for number, text in enumerate(TRUE)]
    before = mean_loss(costs, times, UNITS)
    factors = balanced(costs, times, UNITS)
    after = mean_loss([scaled(text, by) for text, by in zip(costs, factors, strict=True)], times, UNITS)
    assert after < before / 2
    assert off * factors[at] / factors[1 - at] == pytest.approx(1, abs=0.03)


def test_nothing_moves_towards_a_schedule_that_was_not_timed(times: list[Times]) -> None:
    from balanced import balanced

    known = [Times(each.dims, {0: each.us[0]}) for each in times]
    costs = [TRUE[0], f"{TRUE[0]} + 0.01"]
    assert balanced(costs, known, UNITS) == [1.0, 1.0]
