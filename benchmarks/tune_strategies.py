"""How soon each strategy of `tilec tune` comes within 2 % of the best config of a space measured whole.

    python benchmarks/tune_strategies.py [--manifest FILE] results.jsonl...

The files are what run.py of exported folders wrote. Measurements are replayed, so that all strategies meet
the same numbers: configs until one is within 2 % of the best, and seconds of measuring at each strategy's own
pace. The manifest's own config, which is always measured first, does not count. With the manifest, the cost
model of now says its guesses; else those count that were written when the folder was made.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tilec.build.pool import default_jobs
from tilec.runner.journal import Journal
from tilec.runner.judge import OK
from tilec.tune.backends import Local
from tilec.tune.merge import results_of
from tilec.tune.planning import Planned
from tilec.tune.problems import agenda
from tilec.tune.results import Result
from tilec.tune.runs import plan_one
from tilec.tune.search import Exhaustive, Halving, Strategy, Tpe, Trial

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
    print(f"{'variant':52s} {'configs':>7s} " + " ".join(f"{name:>15s}" for name in names))
    for found in results_of(records):
        result = found if guesses is None else guesses.again(found)
        scores = {row.number: result.about.score(row.points) for row in result.rows if row.outcome == OK}
        scores.pop(0, None)
        if len(scores) > 3:
            _print(result, scores)


class _Guesses:
    """What the cost model says now."""

    def __init__(self, manifest: Path) -> None:
        self._problems = {problem.id: problem for problem in agenda(manifest).problems}

    def again(self, result: Result) -> Result:
        """A result with these guesses; its configs are found by their values, as numbers may change."""
        problem = self._problems[result.about.id]
        backend = Local((), jobs=default_jobs())
        try:
            planned = plan_one(backend, problem, result.device)
        finally:
            backend.close()
        numbers = {_text(config): number for number, config in enumerate(result.about.configs)}
        predicted = {
            numbers[_text(problem.configs[number])]: seconds * 1e6
            for number, seconds in planned.predicted.items()
            if _text(problem.configs[number]) in numbers
        }
        return replace(result, about=replace(result.about, predicted=predicted))


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _print(result: Result, scores: Mapping[int, float]) -> None:
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
    print(f"{result.about.title:52s} {len(scores):7d} {cells}")


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
