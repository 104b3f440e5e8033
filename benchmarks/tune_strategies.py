"""How good the first guess is, and how soon each strategy of `tilec tune` comes within 2 % of the best.

    python benchmarks/tune_strategies.py [--manifest FILE] results.jsonl...

The files are what run.py of exported folders wrote. Measurements are replayed, so that all strategies meet
the same numbers: configs until one is within 2 % of the best, and seconds of measuring at each strategy's own
pace. The manifest's own config, which is always measured first, does not count; it and the cost model's first
guess stand as multiples of the best latency. With the manifest, the cost
model of now says its guesses; else those count that were written when the folder was made.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tilec.build.processes.pool import default_jobs
from tilec.portable.runner.journal import Journal
from tilec.portable.runner.judge import OK
from tilec.tune.measure.backends import Local
from tilec.tune.measure.runs import plan_one
from tilec.tune.measure.search import Exhaustive, Halving, Strategy, Tpe, Trial
from tilec.tune.merge import results_of
from tilec.tune.outcome.results import Result
from tilec.tune.plan.planning import Planned
from tilec.tune.plan.problems import agenda

NEAR = 1.02
#: Seconds of a trial beside its samples: loading, checking, warming up.
OVERHEAD = 0.06
SEEDS = 20


def main() -> None:
    """Prints a line for every variant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--manifest", type=Path)
    options = parser.parse_args()
    records = [record for file in options.files for record in Journal(file).read()]
    guesses = _Guesses(options.manifest) if options.manifest else None
    names = ("any order", "cost model", "halving", "tpe")
    head = f"{'variant':52s} {'configs':>7s} {'best us':>8s} {'default':>8s} {'guess':>8s} "
    print(head + " ".join(f"{name:>15s}" for name in names))
    for found in results_of(records):
        result = found if guesses is None else guesses.again(found)
        scores = {row.number: result.about.score(row.points) for row in result.rows if row.outcome == OK}
        default = scores.pop(0, math.nan)
        if len(scores) > 3:
            _print(result, scores, default)


class _Guesses:
    """What the cost model says now."""

    def __init__(self, manifest: Path) -> None:
        self._problems = {problem.id: problem for problem in agenda(manifest).problems}

    def again(self, result: Result) -> Result:
        """A result with these guesses; configs are found by the keys in which they differ, as numbers and
        what they have in common may change."""
        problem = self._problems[result.about.id]
        backend = Local((), jobs=default_jobs())
        try:
            planned = plan_one(backend, problem, result.device)
        finally:
            backend.close()
        keys = _varied(result.about.configs[1:])
        numbers = {_text(config, keys): number for number, config in enumerate(result.about.configs)}
        texts = {number: _text(problem.configs[number], keys) for number in planned.predicted}
        predicted = {
            numbers[texts[number]]: seconds * 1e6
            for number, seconds in planned.predicted.items()
            if texts[number] in numbers
        }
        return replace(result, about=replace(result.about, predicted=predicted))


def _varied(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]


def _text(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([config.get(key) for key in keys])


def _print(result: Result, scores: Mapping[int, float], default: float) -> None:
    order = [number for number in _ordered(result) if number in scores]
    shuffled = [
        _until(Exhaustive(random.Random(seed).sample(order, len(order))), scores) for seed in range(SEEDS)
    ]
    made = [
        (statistics.median(count for count, _ in shuffled), statistics.median(time for _, time in shuffled)),
        _until(Exhaustive(order), scores),
        _until(Halving(order), scores),
        _until(_tpe(result, order), scores),
    ]
    cells = " ".join(f"{count:6.0f}, {time:5.1f} s" for count, time in made)
    best = min(scores.values())
    figures = f"{best:8.2f} {default / best:8.3f} {scores[order[0]] / best:8.3f}"
    print(f"{result.about.title:52s} {len(scores):7d} {figures} {cells}", flush=True)


def _ordered(result: Result) -> list[int]:
    predicted = result.about.predicted
    return sorted(predicted, key=lambda number: predicted[number])


def _tpe(result: Result, order: list[int]) -> Tpe:
    problem = SimpleNamespace(configs=result.about.configs)
    return Tpe(cast(Planned, SimpleNamespace(problem=problem, order=tuple(order))), len(order), 2)


def _until(strategy: Strategy, scores: Mapping[int, float]) -> tuple[int, float]:
    """Trials and seconds until a strategy has measured a config within 2 % of the best."""
    best, seconds, count = min(scores.values()), 0.0, 0
    for trial in _trials(strategy, scores):
        count, seconds = count + 1, seconds + trial.seconds + OVERHEAD
        if scores[trial.number] <= NEAR * best:
            return count, seconds
    return count, math.inf


def _trials(strategy: Strategy, scores: Mapping[int, float]) -> Iterator[Trial]:
    seen: dict[int, float] = {}
    step: Callable[[], Any] = lambda: strategy.next_round(seen)  # noqa: E731
    while trials := step():
        for trial in trials:
            seen[trial.number] = scores[trial.number]
            yield trial


if __name__ == "__main__":
    main()
