"""In which order configs are measured, and for how long.

A strategy gives rounds of trials. A round is measured as a whole, in any order; its results lead to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilec.errors import EnvironmentError_, InputError
from tilec.spelling import suggestion
from tilec.tune.plan.planning import Planned

STRATEGIES = ("halving", "exhaustive", "tpe")
#: Seconds of measuring one config at a point, at first and at most, and where there are many points.
_SHORT, _LONG, _SWEEP = 0.03, 0.2, 0.03
_SURVIVORS = 4  # of halving: few enough to be measured in turns
_GUESSES = 25  # of tpe for every config that is wanted: some are known, some cannot be


@dataclass(frozen=True)
class Trial:
    """Config ``number``, measured for ``seconds`` at each point."""

    number: int
    seconds: float


class Strategy(Protocol):
    """How the space of one problem is searched."""

    def next_round(self, scores: Mapping[int, float]) -> Sequence[Trial]:
        """What to measure next; nothing at the end. ``scores``: microseconds by number, infinite where a
        config failed."""


def strategy_of(name: str, planned: Planned, trials: int | None, at_once: int) -> Strategy:
    """The strategy of a name for a problem. ``trials``: measure at most so many configs; ``at_once``: so many
    are compiled at a time.

    For a sweep every config is measured, whatever the name.

    Raises InputError for an unknown name, EnvironmentError_ where optuna is not installed."""
    order = planned.order if trials is None else planned.order[: max(trials, 1)]
    if planned.problem.is_sweep:
        return Exhaustive(order, _SWEEP)
    if name == "exhaustive":
        return Exhaustive(order, _LONG)
    if name == "halving":
        return Halving(order)
    if name == "tpe":
        return Tpe(planned, len(planned.order) if trials is None else trials, at_once)
    raise InputError(f'there is no strategy "{name}"', remedy=suggestion(name, STRATEGIES))


class Exhaustive:
    """Every config once, for so many seconds at each point."""

    def __init__(self, order: Sequence[int], seconds: float) -> None:
        self._left: Sequence[int] = order
        self._seconds = seconds

    def next_round(self, scores: Mapping[int, float]) -> Sequence[Trial]:
        """All of them, once."""
        left, self._left = self._left, ()
        return [Trial(number, self._seconds) for number in left]


class Halving:
    """Every config for a short time; the better half for twice as long, until few are left (successive
    halving: Jamieson and Talwalkar, 2016)."""

    def __init__(self, order: Sequence[int]) -> None:
        self._left: Sequence[int] = order
        self._seconds = _SHORT
        self._first = True

    def next_round(self, scores: Mapping[int, float]) -> Sequence[Trial]:
        """The survivors."""
        if not self._first:
            alive = [number for number in self._left if math.isfinite(scores.get(number, math.inf))]
            if len(alive) <= _SURVIVORS:
                return []
            kept = max(_SURVIVORS, math.ceil(len(alive) / 2))
            self._left = sorted(alive, key=lambda number: scores[number])[:kept]
            self._seconds = min(2 * self._seconds, _LONG)
        self._first = False
        return [Trial(number, self._seconds) for number in self._left]


class Tpe:
    """A tree-structured Parzen estimator over the keys in which configs differ (optuna); the best guesses of
    the cost model come first."""

    def __init__(self, planned: Planned, trials: int, at_once: int) -> None:
        try:
            import optuna
        except ImportError as error:
            remedy = "pip install 'tilec[tpe]', or choose another strategy"
            raise EnvironmentError_("the strategy tpe needs optuna", remedy=remedy) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._planned, self._left, self._at_once = planned, trials, at_once
        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=max(4, trials // 8))
        self._study = optuna.create_study(sampler=sampler)
        self._axes = _axes(planned)
        self._numbers = {self._values(number): number for number in planned.order}
        self._asked: list[tuple[Any, int]] = []
        self._seen: set[int] = set()
        for number in planned.order[: max(4, trials // 8)]:
            self._study.enqueue_trial(dict(zip(self._axes, self._values(number), strict=True)))

    def next_round(self, scores: Mapping[int, float]) -> Sequence[Trial]:
        """As many new configs as compile at a time; guesses that the target cannot have cost nothing. Where
        all guesses are known already, the cost model's next one."""
        for trial, number in self._asked:
            self._tell(trial, scores.get(number, math.inf))
        self._asked = []
        for _ in range(_GUESSES * self._at_once):
            if self._left == 0 or len(self._asked) == self._at_once:
                break
            self._guess(scores)
        found = [number for _, number in self._asked] or self._unseen()[: min(self._left, 1)]
        self._left -= 0 if self._asked else len(found)
        self._seen.update(found)
        return [Trial(number, _LONG) for number in found]

    def _guess(self, scores: Mapping[int, float]) -> None:
        trial = self._study.ask()
        number = self._numbers.get(self._suggested(trial))
        if number is None or number in self._seen:
            self._tell(trial, math.inf if number is None else scores.get(number, math.inf))
            return
        self._seen.add(number)
        self._asked.append((trial, number))
        self._left -= 1

    def _unseen(self) -> list[int]:
        return [number for number in self._planned.order if number not in self._seen]

    def _tell(self, trial: Any, score: float) -> None:
        from optuna.trial import TrialState

        if math.isfinite(score):
            self._study.tell(trial, score)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def _suggested(self, trial: Any) -> tuple[str, ...]:
        return tuple(trial.suggest_categorical(key, values) for key, values in self._axes.items())

    def _values(self, number: int) -> tuple[str, ...]:
        config = self._planned.problem.configs[number]
        return tuple(repr(config.get(key)) for key in self._axes)


def _axes(planned: Planned) -> dict[str, list[str]]:
    """The keys in which the configs differ, with their values as texts."""
    configs = [planned.problem.configs[number] for number in planned.order]
    keys = dict.fromkeys(key for config in configs for key in config)
    values = {key: sorted({repr(config.get(key)) for config in configs}) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}
