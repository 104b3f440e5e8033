from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tune_samples import ONE

from tilec.backends.base import limits_of
from tilec.build.schedules.cost import predicted_seconds
from tilec.build.schedules.examine import Examined, LaunchShape, Refused
from tilec.build.schedules.terms import Term, Terms
from tilec.errors import InputError
from tilec.package.model import Signature
from tilec.targets import parse_target
from tilec.tune.measure.search import strategy_of
from tilec.tune.outcome.results import About, Final, PointFacts, winner_of
from tilec.tune.plan.planning import Planned, plan_problem
from tilec.tune.plan.problems import agenda


@pytest.fixture
def planned(manifest: Callable[..., Path]) -> Planned:
    """32 configs, of which some are refused and two are the same."""
    path = manifest("block = { min = 1, max = 8 }\nthreads = [1, 2, 4, 8]", ONE)
    (problem,) = agenda(path).problems
    found: list[Examined | Refused] = []
    for number, config in enumerate(problem.configs):
        if config.get("threads") == 8:
            found.append(Refused("threads", "too many"))
            continue
        work = Terms((Term((f"n // {config['block']}",), traffic=4 * config["block"]),))
        code = "same" if config == {"block": 1, "threads": 1} or number == 0 else str(number)
        found.append(Examined(code, work, (LaunchShape(("n",), 32),), Signature((), ()), ""))
    return plan_problem(problem, found, limits_of(parse_target("x86-64-v2")), lambda point: 1e6)


def test_what_is_left_out_is_counted(planned: Planned) -> None:
    assert planned.counts == {"threads": 8, "same code": 1}
    assert planned.order[0] == 0  # the manifest's own
    assert len(planned.order) == 24


def search(planned: Planned, name: str, cost: Callable[[int], float], trials: int | None = None) -> list[int]:
    """What a strategy measures, in order."""
    strategy, scores, order = strategy_of(name, planned, trials, 2), dict[int, float](), list[int]()
    while chosen := strategy.next_round(scores):
        for trial in chosen:
            scores[trial.number] = cost(trial.number)
            order.append(trial.number)
    return order


def test_exhaustive_measures_every_config_once(planned: Planned) -> None:
    assert search(planned, "exhaustive", float) == list(planned.order)
    assert search(planned, "exhaustive", float, 5) == list(planned.order[:5])


def test_halving_spends_time_on_the_better_half(planned: Planned) -> None:
    order = search(planned, "halving", lambda number: math.inf if number % 5 == 1 else float(number))
    assert order[:24] == list(planned.order)
    assert len(order) == 24 + 10 + 5 + 4  # five of 24 fail
    assert set(order[-4:]) == set(sorted(number for number in planned.order if number % 5 != 1)[:4])


def test_tpe_finds_the_best_of_a_smooth_space_early(planned: Planned) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    configs = planned.problem.configs
    order = search(planned, "tpe", lambda n: 10 + abs(configs[n]["block"] - 6) + configs[n].get("threads", 9))
    assert len(set(order)) == len(order) == 24
    best = next(n for n in planned.order if configs[n] == {"block": 6, "threads": 1})
    assert order.index(best) < 16
    assert len(search(planned, "tpe", float, 7)) == 7


def test_unknown_strategies_are_named(planned: Planned) -> None:
    with pytest.raises(InputError, match='no strategy "grid"'):
        strategy_of("grid", planned, None, 1)


def known(incumbent: int) -> About:
    return About("id", "k", "sm_90a", {}, (PointFacts("n=1"),), ({}, {"a": 1}, {"a": 2}), "", incumbent)


@pytest.mark.parametrize(
    ("incumbent", "noise", "winner"),
    [(0, 0.001, 1), (0, 0.03, 0), (2, 0.03, 2), (2, 0.0, 2)],
    ids=["gain", "gain-within-noise", "stored-within-noise", "gain-of-nothing"],
)
def test_a_winner_stays_unless_the_gain_exceeds_the_noise(incumbent: int, noise: float, winner: int) -> None:
    finals = {0: Final(102.0, noise), 1: Final(100.0, noise), 2: Final(100.3, noise)}
    assert winner_of(known(incumbent), {}, finals) == winner


def test_failed_configs_never_win() -> None:
    assert winner_of(known(0), {0: math.inf, 1: 3.0}, {}) == 1
    assert winner_of(known(0), {0: math.inf}, {}) is None


def test_limits_follow_from_what_the_driver_says() -> None:
    facts = {"multiprocessors": 132, "clock_khz": 1980000, "memory_khz": 3201000, "bus_bits": 6016}
    limits = limits_of(parse_target("sm_90a"), facts)
    assert limits.peak("float16") == pytest.approx(1070e12, rel=0.01)
    assert limits.peak("float8_e4m3fn") == 2 * limits.peak("float16")
    assert limits.bandwidth == pytest.approx(4.81e12, rel=0.01)
    assert limits.least_seconds(1e12, 1e9, "float16") == pytest.approx(1e12 / 1070e12, rel=0.01)


def test_the_cost_model_wants_full_waves_and_large_tiles() -> None:
    limits = limits_of(parse_target("sm_90a"))

    def seconds(tile: int, stages: int = 4) -> float:
        grid = (f"(M + {tile - 1}) // {tile}", f"(N + {tile - 1}) // {tile}")
        counts = (*grid, "K // 64")
        flops, traffic = 2 * tile * tile * 64, 2 * tile * 64 * 2
        work = Terms((Term(counts, flops=flops, dtype="float16"), Term(counts, traffic=traffic)))
        shape = LaunchShape(grid, 256, stages * traffic)
        examined = Examined("", work, (shape,), Signature((), ()), "")
        return predicted_seconds(examined, {"M": 4096, "N": 4096, "K": 4096}, 3 * 2 * 4096.0**2, limits)

    assert seconds(128) < seconds(64) < seconds(32)
